/**
 * `npm run size`: measures the size of the Worker (gzip) with the shipped config and with configs that use every part, and the CPU time
 * of its start. Fails above the bounds. CI runs it.
 */
import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'
import { loadConfig } from '../src/node/cli/load-config.ts'
import { findProject } from '../src/node/project.ts'
import { bundleOptions } from '../src/node/worker-bundle.ts'
import { median } from './measure.ts'

const { root: ROOT, configFile: CONFIG_FILE } = findProject()
const EVERYTHING = fileURLToPath(new URL('../test/support/everything.config.ts', import.meta.url))
const WITH_SHEDDING = fileURLToPath(new URL('../test/support/shedding.config.ts', import.meta.url))
const WITH_LIMITS = fileURLToPath(new URL('../test/support/limits.config.ts', import.meta.url))

const GATEWAY = "export { default } from './src/built/worker.generated.ts'"
const BINDING = "export { Limits } from './src/built/binding.generated.ts'"

/**
 * Kilobytes of 1,000 bytes. @upstash/redis (17.6 kB, which cannot be reduced), Hono (5.7 kB) and the scripts (5 kB) are almost half of the
 * smallest Worker. Our own SHA-256 adds 2.9 kB. It needs less CPU at each request than crypto.subtle, and its size costs a few milliseconds
 * once for each isolate.
 */
const SIZES = [
  { what: 'Worker with the shipped config', file: CONFIG_FILE, entry: GATEWAY, most: 64 },
  { what: 'Worker with every part but load shedding and hooks', file: EVERYTHING, entry: GATEWAY, most: 89 },
  { what: 'Worker with every part', file: WITH_SHEDDING, entry: GATEWAY, most: 103 },
  {
    what: 'Worker with the shipped config and a service binding for four limits',
    file: WITH_LIMITS,
    entry: `${GATEWAY}; ${BINDING}`,
    most: 78,
  },
  {
    what: 'Service binding for four limits alone',
    file: WITH_LIMITS,
    entry: `${BINDING}; export default {}`,
    most: 57.5,
  },
]

/** Edges without a build. Each has every part. */
const EDGES = [
  {
    what: 'Guard',
    from: 'guard/index',
    code: 'export default guard(config)(() => new Response())',
    name: 'guard',
    most: 110.5,
  },
  {
    what: 'Hono middleware, with Hono',
    from: 'hono/middleware',
    code: "import { Hono } from 'hono'; export default new Hono().use(sluice(config))",
    name: 'sluice',
    most: 119,
  },
  {
    what: 'Service binding without a build',
    from: 'rpc/entrypoint',
    code: 'export class Limits extends limitsEntrypoint(config) {}; export default {}',
    name: 'limitsEntrypoint',
    most: 90,
  },
  {
    what: 'Limits by name',
    from: 'sluice',
    code: 'export default createLimiter(config)',
    name: 'createLimiter',
    most: 88.5,
  },
  {
    what: 'Gateway without a build',
    from: 'gateway/whole-worker',
    code: 'export default gateway(config)',
    name: 'gateway',
    most: 117,
  },
]

/** ms of CPU. A start takes 5 to 18 ms, so the bound leaves room for a busy machine. Cloudflare allows one second. */
const MOST_STARTUP_MS = 60
const STARTUP_ROUNDS = 3

let isTooMuch = false

function report(what: string, value: number, unit: string, most: number): void {
  const isAbove = value > most
  isTooMuch ||= isAbove
  console.log(`${what}: ${value.toFixed(1)} ${unit}, at most ${most} ${unit}${isAbove ? '  TOO MUCH' : ''}`)
}

/** Bundles an entry as wrangler does it. @returns its size in kB (gzip) */
async function sizeOf(entry: string, file: string): Promise<number> {
  const { entryPoints: _, ...options } = bundleOptions(file, () => loadConfig(file))
  const { outputFiles } = await build({
    ...options,
    stdin: { contents: entry, resolveDir: ROOT, loader: 'ts' },
    minify: true,
    keepNames: false,
  })
  return gzipSync(outputFiles![0]!.contents).length / 1e3
}

for (const { what, file, entry, most } of SIZES) {
  report(`${what}, gzip`, await sizeOf(entry, file), 'kB', most)
}

for (const { what, from, code, name, most } of EDGES) {
  const contents = `import { ${name} } from './src/edges/${from}.ts'
    import config from './sluice.config.ts'
    ${code}`
  report(`${what}, gzip`, await sizeOf(contents, CONFIG_FILE), 'kB', most)
}

const directory = mkdtempSync(join(tmpdir(), 'sluice-startup-'))
const rounds: number[] = []
for (let i = 0; i < STARTUP_ROUNDS; i++) rounds.push(await startup(join(directory, `${i}.cpuprofile`)))
rmSync(directory, { recursive: true })
report('CPU time of the start with the shipped config, median', median(rounds), 'ms', MOST_STARTUP_MS)

if (isTooMuch) process.exitCode = 1

/** CPU time of the Worker's start (ms), from the profile of `wrangler check startup`. */
async function startup(outfile: string): Promise<number> {
  const wrangler = join(ROOT, 'node_modules/wrangler/bin/wrangler.js')
  const args = [wrangler, 'check', 'startup', '--env=', '--outfile', outfile]
  await promisify(execFile)(process.execPath, args, {
    cwd: ROOT,
    env: { ...process.env, WRANGLER_SEND_METRICS: 'false', WRANGLER_HIDE_BANNER: 'true' },
  })
  const profile = JSON.parse(readFileSync(outfile, 'utf8')) as {
    nodes: { id: number; callFrame: { functionName: string } }[]
    samples: number[]
    timeDeltas: number[]
  }
  const idle = new Set(
    profile.nodes.flatMap(({ id, callFrame }) => (callFrame.functionName === '(idle)' ? [id] : [])),
  )
  const active = profile.timeDeltas.filter((_, i) => !idle.has(profile.samples[i]!))
  return active.reduce((sum, delta) => sum + delta, 0) / 1e3
}
