/**
 * Runs the Worker in workerd, as it is deployed: the same entry, bundled by the same bundler with the same conditions, under the
 * compatibility date of wrangler.toml. This is a separate process with its own process group, so that workerd ends together with it.
 */
import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { type BuildResult, context } from 'esbuild'
import { convertV4MiniflareOptions, Log, LogLevel, Miniflare } from 'miniflare'
import { checkedConfig } from '../../config/check/check.ts'
import type { ConfigInput } from '../../config/check/schema.ts'
import type { Config } from '../../config/compile.ts'
import { countsByField } from '../../config/identity-parts.ts'
import { METRICS_TOKEN } from '../../config/metrics-token.ts'
import { KEY_SECRET } from '../../credentials/key-signature.ts'
import { ALL_PARTS } from '../../set-ups/http/all-parts.ts'
import { createIdentifier } from '../../set-ups/http/identify.ts'
import { UTILIZATION_SECRET } from '../../shedding/signal-name.ts'
import { withLines } from '../config-lines.ts'
import { locatedWarnings, warningLine } from '../config-warnings.ts'
import { readLocalVariables, variablesOfWorker } from '../dev-vars.ts'
import { importConfig } from '../import-config.ts'
import { projectWith } from '../project.ts'
import { bundleOptions } from '../worker-bundle.ts'
import { compatibilityIn } from '../wrangler-file.ts'
import { wrapInEdge } from './edge.ts'
import type { WorkerMessage, WorkerSettings } from './worker-messages.ts'

const settings: WorkerSettings = JSON.parse(process.env.SLUICE_WORKER_SETTINGS ?? '{}')
const project = projectWith(settings.configFile)
const { configFile } = project

// While a config is loaded, process.exit throws.
const { exit } = process

let miniflare: Miniflare | undefined
let reads = 0
let hasServed = false
/** The input of the config that was read last. */
let input: ConfigInput

process.on('disconnect', stop)
process.on('SIGTERM', stop)
// Ctrl-C is handled by the parent process, which then stops its parts in order.
process.on('SIGINT', () => {})

const options = bundleOptions(configFile, readConfig, project)
const builder = await context({
  ...options,
  minify: settings.minify ?? false,
  plugins: [...options.plugins!, { name: 'run', setup: build => build.onEnd(run) }],
})
if (settings.watch) await builder.watch()
else await builder.rebuild().catch(() => {})

async function run(result: BuildResult): Promise<void> {
  const [error] = result.errors
  if (error) {
    const place = error.location ? `${error.location.file}:${error.location.line}: ` : ''
    return reject(`${place}${error.text}`)
  }
  let config: Config
  try {
    config = await checkConfig()
  } catch (error) {
    return reject(messageOf(error))
  }
  try {
    await load(result.outputFiles![0]!.text, config)
  } catch (error) {
    const message = messageOf(error)
    sendToParent(hasServed ? { type: 'stopped', message } : { type: 'failed', message })
  }
}

const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error))

/** Checks the config in this process: in workerd, an invalid config would stop the Worker that is running. */
async function checkConfig(): Promise<Config> {
  const config = await readConfig()
  // Checks the secrets too.
  createIdentifier(config, ALL_PARTS, { ...readLocalVariables(project), ...settings.bindings })
  return config
}

async function readConfig(): Promise<Config> {
  reads += 1
  const module = await importConfig(configFile, `?read=${reads}`)
  try {
    const config = checkedConfig(module.default)
    input = module.default as ConfigInput
    return config
  } catch (error) {
    throw withLines(error, configFile)
  }
}

/** The variables that the config names. A deployment would get them from Cloudflare. */
function variablesNamedBy({ credentials, shedding, metrics, rules }: Config): string[] {
  const secrets = [...credentials.jwt.values()].flatMap(({ keys }) => ('secret' in keys ? [keys.secret] : []))
  return [
    'SLUICE_ENVIRONMENT',
    ...(shedding?.workerUtilization?.pushes ? [UTILIZATION_SECRET] : []),
    ...(credentials.signature || countsByField(rules) ? [KEY_SECRET] : []),
    ...(metrics ? [METRICS_TOKEN] : []),
    ...secrets,
  ]
}

async function load(script: string, config: Config): Promise<void> {
  const options = convertV4MiniflareOptions({
    name: 'sluice',
    modules: settings.isBare
      ? [{ type: 'ESModule', path: 'worker.mjs', contents: script }]
      : wrapInEdge(script),
    ...compatibility(),
    bindings: { ...variablesOfWorker(project, variablesNamedBy(config)), ...settings.bindings },
    host: settings.host,
    port: settings.port,
    ...(settings.inspect && { inspectorPort: 0 }),
    // Request.cf would be fetched from the network.
    cf: false,
    log: new Log(LogLevel.NONE),
    unsafeHandleRuntimeRestart: () => sendToParent({ type: 'restarted' }),
    handleStructuredLogs: ({ level, message }) => sendToParent({ type: 'log', level, message }),
  })
  if (miniflare) {
    await miniflare.setOptions(options)
    const { environment, credentials } = config
    sendToParent({
      type: 'reloaded',
      keys: { environment, keyPrefix: credentials.keyPrefix },
      hasApi: input.api !== undefined,
      warnings: locatedWarnings(input, configFile).map(warning => warningLine(warning, configFile)),
    })
    return
  }
  miniflare = new Miniflare(options)
  const url = await miniflare.ready
  hasServed = true
  const inspector = settings.inspect ? { inspectorUrl: (await miniflare.getInspectorURL()).href } : {}
  sendToParent({ type: 'ready', url: url.origin, ...inspector })
}

/** Read from wrangler.toml, so that what runs here is what is deployed. */
function compatibility(): { compatibilityDate: string; compatibilityFlags: string[] } {
  const toml = readFileSync(resolve(project.root, 'wrangler.toml'), 'utf8')
  const { date, flags } = compatibilityIn(toml)
  if (!date)
    throw new Error(
      'wrangler.toml: compatibility_date is missing. Add it, as in compatibility_date = "2026-11-01".',
    )
  return { compatibilityDate: date, compatibilityFlags: flags }
}

function reject(message: string): void {
  sendToParent(hasServed ? { type: 'rejected', message } : { type: 'failed', message })
}

function sendToParent(message: WorkerMessage): void {
  // The parent may exit between the check and the call. The empty callback ignores the error.
  if (process.connected) process.send!(message, undefined, undefined, () => {})
}

/** How long requests in flight may delay the exit. The guardian then ends workerd, which is in the same process group. */
const STOP_MS = 1000

async function stop(): Promise<void> {
  setTimeout(() => exit(0), STOP_MS)
  await Promise.allSettled([builder.dispose(), miniflare?.dispose()])
  exit(0)
}
