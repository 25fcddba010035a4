/** `npx sluicegate doctor`: finds out whether Sluice works on this store. */
import { Command, InvalidArgumentError, Option } from 'commander'
import { parseDuration } from '../../config/duration.ts'
import { isStoreUrl } from '../../config/forms.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { type Checked, type Overall, runChecks } from '../doctor/checks.ts'
import type { StoreAddress } from '../doctor/examined-store.ts'
import { hiderOf } from '../doctor/secrets.ts'
import type { ServeVariables } from '../serve/serve-store.ts'
import { JSON_HELP, mustConfirm, secretOf, YES_HELP } from './administration.ts'
import { parseHeader, parseOriginUrl, restStore } from './arguments.ts'
import { doctorDocument, lineOf, verdictText } from './doctor-output.ts'
import { withExamples } from './help.ts'
import type { ConfigLoader } from './load-config.ts'

interface Flags extends Partial<Record<'store' | 'token' | 'url' | 'key' | 'origin', string>> {
  header?: [string, string][]
  path: string
  load?: number
  for: number
  json?: boolean
  yes?: boolean
}

export function doctorCommand(load: ConfigLoader): Command {
  const command = new Command('doctor')
    .summary('find out whether it works on your store and your edge')
    .description(
      'Find out whether Sluice works on this store, with the rules of the config. The keys that this takes are removed again, and no other key is touched. With --url, find out whether a deployed gateway works.',
    )
    .option('--load <rate>', "also make so many decisions, as in '20/s'; shows the cost before", parseRate)
    .addOption(
      new Option('--for <duration>', 'duration of the load').default(60, '60s').argParser(parseLoadDuration),
    )
    .option('--json', JSON_HELP)
    .option('--yes', YES_HELP)
    .optionsGroup('A store:')
    .option('--store <url>', 'REST URL, or redis://… (default: $UPSTASH_REDIS_REST_URL or $REDIS_URL)')
    .option('--token <token>', 'REST token (default: $UPSTASH_REDIS_REST_TOKEN)')
    .optionsGroup('A deployed gateway:')
    .option('--url <url>', 'URL of the gateway', parseOriginUrl)
    .option('--key <key>', 'API key for the requests; - reads it from standard input')
    .option('--header <header>', "header for the requests, as in 'x-tenant: a'; can be repeated", parseHeader)
    .option('--path <path>', 'path of the requests; a burst uses up its tightest limit', parsePath, '/')
    .option('--origin <url>', 'URL of the origin, to see if it answers without the gateway', parseOriginUrl)
    .addHelpText('after', MEANING)
    .action(doctor.bind(null, load))
  return withExamples(
    command,
    ...['doctor', 'doctor --store redis://10.0.0.5:6379', 'doctor --load 20/s --for 60s'],
    'doctor --url https://gateway.example.com --key - --path /demo',
  )
}

const MEANING = `
Each check is ok, limit (it works, with a limitation), FAULT (do not deploy) or ? (it could not be found out).
The report has no host, token or key, so that it can be pasted into an issue.

The exit code is 0 if it works, 3 if it works with limits, and 1 if you should not deploy, or if the
examination was stopped.`

function parsePath(text: string): string {
  if (text.startsWith('/')) return text
  throw new InvalidArgumentError('Begin it with a slash, as in /demo.')
}

function parseRate(text: string): number {
  const rate = Number(/^(\d{1,3})\/s$/.exec(text)?.[1])
  if (rate >= 1 && rate <= 500) return rate
  throw new InvalidArgumentError('Use 1/s to 500/s.')
}

function parseLoadDuration(text: string): number {
  const seconds = (parseDuration(text) ?? 0) / 1e6
  if (Number.isInteger(seconds) && seconds >= 1 && seconds <= 600) return seconds
  throw new InvalidArgumentError('Use 1s to 10m.')
}

async function doctor(loadConfig: ConfigLoader, flags: Flags): Promise<void> {
  const config = await loadConfig()
  const { url, path, origin } = flags
  const key = flags.key === undefined ? undefined : await secretOf(flags.key)
  const headers = { ...(key && { 'x-api-key': key }), ...Object.fromEntries(flags.header ?? []) }
  const store = url === undefined || flags.store !== undefined ? await storeOf(flags) : undefined
  const load = flags.load === undefined ? undefined : { perSecond: flags.load, seconds: flags.for }
  // Imported here, because other commands do not need them.
  const { examineStore } = await import('../doctor/examine-store.ts')
  const { gatewayChecks } = await import('../doctor/gateway.ts')
  if (load && store) {
    console.error((await import('../doctor/load.ts')).costOfLoad(config, load))
    await mustConfirm('Start the load?', flags)
  }
  const hide = hiderOf([store?.url, store?.token, url, origin, ...Object.values(headers)])
  const stop = stopOnSignals()
  const all: Checked[] = []
  const note = (checked: Checked) => {
    all.push(hide(checked))
    if (!flags.json) console.log(lineOf(hide(checked)))
  }
  const examination = { isStopped: stop.isStopped, note }
  try {
    if (store) await examineStore(store, config, examination, load)
    if (url) await runChecks(gatewayChecks({ url, path, headers, origin, config }), examination)
  } finally {
    stop.end()
  }
  const document = doctorDocument(all, stop.isStopped())
  console.log(flags.json ? JSON.stringify(document, null, 2) : `\n${verdictText(all)}`)
  fail(document.verdict, stop.isStopped())
}

const STORE_URLS = 'Use the http or https URL of its REST API, without credentials, or a redis:// URL.'

/** The store of `--store`, or that of `serve`. */
async function storeOf({ store, token }: Flags): Promise<StoreAddress> {
  const { storeKindOf } = await import('../serve/serve-store.ts')
  const isDirect = store
    ? /^(rediss?(\+\w+)?|unix):/i.test(store)
    : storeKindOf(process.env as ServeVariables) === 'redis'
  if (isDirect) return { url: store ?? process.env.REDIS_URL! }
  if (store !== undefined && !isStoreUrl(store))
    throw new AdminError('usage', `--store is not valid. ${STORE_URLS}`)
  return restStore({ ...(store && { url: store }), ...(token && { token }) })
}

/** The first signal ends the examination after the current check, so that the keys are removed; a later one ends the process. */
function stopOnSignals() {
  let stoppedAt: number | undefined
  const onSignal = () => {
    if (stoppedAt === undefined) console.error('Stopping: the keys of the examination are removed first.')
    stoppedAt ??= performance.now()
    // npx passes signals on, so its command gets each of them twice.
    if (performance.now() - stoppedAt > 1000) process.exit(1)
  }
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
  for (const signal of signals) process.on(signal, onSignal)
  return {
    isStopped: () => stoppedAt !== undefined,
    end: () => signals.map(each => process.off(each, onSignal)),
  }
}

/** @throws AdminError unless it works */
function fail(verdict: Overall, isStopped: boolean): void {
  if (isStopped)
    throw new AdminError('refused', 'Stopped before the end, so the verdict is about the checks above.')
  if (verdict === 'do-not-deploy')
    throw new AdminError('refused', 'Do not deploy. Fix what is marked as FAULT, and run this again.')
  if (verdict === 'works-with-limits') throw new AdminError('above', 'It works, with limits.')
}
