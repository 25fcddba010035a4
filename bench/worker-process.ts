/** Runs a Worker of the benchmark in workerd, built and configured as src/node/start/worker-process.ts does with Sluice. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { convertV4MiniflareOptions, Log, LogLevel, Miniflare } from 'miniflare'
import { type BenchWorker, childSettings, reportReady } from './child.ts'

const { entry, bindings, ratelimits } = childSettings<BenchWorker>()
const pathOf = (name: string) => fileURLToPath(new URL(name, import.meta.url))

const { outputFiles } = await build({
  entryPoints: [pathOf(entry)],
  bundle: true,
  write: false,
  format: 'esm',
  target: 'esnext',
  minify: true,
  conditions: ['workerd', 'worker', 'browser'],
  external: ['node:*', 'cloudflare:*'],
  logLevel: 'silent',
})
const toml = readFileSync(pathOf('../wrangler.toml'), 'utf8')
const [, compatibilityDate] = /^compatibility_date\s*=\s*"([^"]+)"/m.exec(toml)!
const [, flags] = /^compatibility_flags\s*=\s*\[([^\]]*)\]/m.exec(toml)!

const miniflare = new Miniflare(
  convertV4MiniflareOptions({
    name: 'bench',
    modules: true,
    script: outputFiles[0]!.text,
    compatibilityDate: compatibilityDate!,
    compatibilityFlags: [...flags!.matchAll(/"([^"]+)"/g)].map(([, flag]) => flag!),
    bindings,
    ...(ratelimits && { ratelimits }),
    host: '127.0.0.1',
    port: 0,
    cf: false,
    log: new Log(LogLevel.NONE),
    handleStructuredLogs: () => {},
  }),
)
const url = await miniflare.ready
reportReady({ url: url.origin }, () => miniflare.dispose())
