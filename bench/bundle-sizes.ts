/** How large Workers are (gzip), by what they import. `npm run size` compares the sizes with bounds, and a test with the pages. */
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { type BuildOptions, build } from 'esbuild'
import { loadConfig } from '../src/node/cli/load-config.ts'
import { findProject } from '../src/node/project.ts'
import { bundleOptions } from '../src/node/worker-bundle.ts'

const { root: ROOT, configFile: CONFIG_FILE } = findProject()
const EVERYTHING = fileURLToPath(new URL('../test/support/everything.config.ts', import.meta.url))
const WITH_SHEDDING = fileURLToPath(new URL('../test/support/shedding.config.ts', import.meta.url))
const WITH_LIMITS = fileURLToPath(new URL('../test/support/limits.config.ts', import.meta.url))
const WITH_API = fileURLToPath(new URL('../test/support/api-only.config.ts', import.meta.url))
const WITH_API_AND_STATS = fileURLToPath(new URL('../test/support/api-with-stats.config.ts', import.meta.url))
const WITH_ALL_OF_API = fileURLToPath(new URL('../test/support/api-all.config.ts', import.meta.url))
const WITH_API_AND_LIMITS = fileURLToPath(new URL('../test/support/api.config.ts', import.meta.url))
const WITH_API_AND_ALL_LIMITS = fileURLToPath(
  new URL('../test/support/api-limits.config.ts', import.meta.url),
)

const GATEWAY = "export { default } from './src/built/worker.generated.ts'"
const RPC =
  "import { limitsEntrypoint } from './src/set-ups/rpc/entrypoint.ts'; import config from './sluice.config.ts'"
const BINDING = "export { Limits } from './src/built/binding.generated.ts'"

/**
 * Kilobytes of 1,000 bytes. Of the smallest Worker, Hono is 5.7 kB and the scripts are 5 kB. The names of headers that do not reach the
 * origin are 0.7 kB. Our own SHA-256 adds 2.9 kB. It needs less CPU at each request than crypto.subtle, and its size costs a few
 * milliseconds once for each isolate.
 */
const WORKERS: Bundle[] = [
  { what: 'Worker with the shipped config', file: CONFIG_FILE, entry: GATEWAY, most: 76.3, isOrdered: true },
  {
    what: 'Worker with every part but load shedding and hooks',
    file: EVERYTHING,
    entry: GATEWAY,
    most: 108.1,
  },
  { what: 'Worker with every part', file: WITH_SHEDDING, entry: GATEWAY, most: 129.4, isOrdered: true },
  {
    what: 'Worker with the shipped config and a service binding for four limits',
    file: WITH_LIMITS,
    entry: `${GATEWAY}; ${BINDING}`,
    most: 100,
    isOrdered: true,
  },
  {
    what: 'Worker with the shipped config and limitsEntrypoint for four limits',
    file: WITH_LIMITS,
    entry: `${GATEWAY}; ${RPC}; export class Limits extends limitsEntrypoint(config) {}`,
    most: 175.6,
  },
  {
    what: 'Worker with the shipped config and the API',
    file: WITH_API,
    entry: GATEWAY,
    most: 99.6,
    isOrdered: true,
  },
  {
    what: 'Worker with the shipped config and the API with statistics',
    file: WITH_API_AND_STATS,
    entry: GATEWAY,
    most: 101.7,
    isOrdered: true,
  },
  {
    what: 'Worker with the shipped config and all of the API',
    file: WITH_ALL_OF_API,
    entry: GATEWAY,
    most: 115.7,
    isOrdered: true,
  },
  {
    what: 'Worker with the shipped config, the API and four limits',
    file: WITH_API_AND_LIMITS,
    entry: GATEWAY,
    most: 125.6,
    isOrdered: true,
  },
  {
    what: 'Worker with the shipped config, the API and limits of every kind',
    file: WITH_API_AND_ALL_LIMITS,
    entry: GATEWAY,
    most: 137.3,
    isOrdered: true,
  },
  {
    what: 'Service binding for four limits alone',
    file: WITH_LIMITS,
    entry: `${BINDING}; export default {}`,
    most: 77.2,
  },
]

/** Set-ups without a build. Each has every part. */
const SET_UPS = [
  {
    what: 'Guard',
    from: 'guard/index',
    code: 'export default guard(config)(() => new Response())',
    name: 'guard',
    most: 185.6,
  },
  {
    what: 'Hono middleware, with Hono',
    from: 'hono/middleware',
    code: "import { Hono } from 'hono'; export default new Hono().use(sluice(config))",
    name: 'sluice',
    most: 193.9,
  },
  {
    what: 'Service binding without a build',
    from: 'rpc/entrypoint',
    code: 'export class Limits extends limitsEntrypoint(config) {}; export default {}',
    name: 'limitsEntrypoint',
    most: 148.9,
  },
  {
    what: 'Limits by name',
    from: 'sluice',
    code: 'export default createLimiter(config)',
    name: 'createLimiter',
    most: 146.8,
  },
  {
    what: 'Gateway without a build',
    from: 'gateway/whole-worker',
    code: 'export default gateway(config)',
    name: 'gateway',
    most: 192.7,
  },
]

export interface Bundle {
  what: string
  /** The config that it is bundled for. */
  file: string
  entry: string
  /** kB (gzip). */
  most: number
  /** The order of modules is judged by it (module-order.ts). Together, these bundles have all modules of built Workers. */
  isOrdered?: boolean
}

const CLIENT = "export { createClient, LimitError } from './src/client/index.ts'"

export const BUNDLES: readonly Bundle[] = [
  { what: 'Client', file: CONFIG_FILE, entry: CLIENT, most: 4.9 },
  ...WORKERS,
  ...SET_UPS.map(({ what, from, code, name, most }) => ({
    ...{ what, most, file: CONFIG_FILE },
    entry: `import { ${name} } from './src/set-ups/${from}.ts'
      import config from './sluice.config.ts'
      ${code}`,
  })),
]

/** Bundles an entry as wrangler does it, with the scripts of its config. */
export function optionsOf({ entry, file }: Pick<Bundle, 'entry' | 'file'>): BuildOptions {
  const { entryPoints: _, ...options } = bundleOptions(file, () => loadConfig(file))
  const stdin = { contents: entry, resolveDir: ROOT, loader: 'ts' } as const
  return { ...options, stdin, minify: true, keepNames: false }
}

/** @returns the size of a bundle in kB (gzip) */
export async function sizeOf(bundle: Pick<Bundle, 'entry' | 'file'>): Promise<number> {
  const { outputFiles } = await build(optionsOf(bundle))
  return gzipSync(outputFiles![0]!.contents).length / 1e3
}
