/** `npx sluicegate doctor`: finds out whether Sluice works on this store. */
import { Command, InvalidArgumentError, Option } from 'commander'
import { parseDuration } from '../../config/duration.ts'
import { isStoreUrl } from '../../config/forms.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { type Checked, type Overall, runChecks } from '../doctor/checks.ts'
import { hiderOf } from '../doctor/secrets.ts'
import { JSON_HELP, mustConfirm, secretOf, YES_HELP } from './administration.ts'
import { parseHeader, parseOriginUrl, restStore } from './arguments.ts'
import { doctorDocument, lineOf, verdictText } from './doctor-output.ts'
import { optionIn, withExamples } from './help.ts'
import type { ConfigLoader } from './load-config.ts'

interface Flags {
  store?: string
  token?: string
  url?: string
  key?: string
  header?: [string, string][]
  path: string
  origin?: string
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
    .option(
      '--load <rate>',
      "also make this many decisions a second, such as '20/s'; shows the cost before",
      parseRate,
    )
    .addOption(
      new Option('--for <duration>', 'duration of the load').default(60, '60s').argParser(parseLoadDuration),
    )
  optionIn(STORE, command, '--store <url>', 'REST URL of the store (default: $UPSTASH_REDIS_REST_URL)')
  optionIn(STORE, command, '--token <token>', 'REST token (default: $UPSTASH_REDIS_REST_TOKEN)')
  const gateway = (flags: string, help: string, change: (option: Option) => Option = option => option) =>
    command.addOption(change(new Option(flags, help).helpGroup(GATEWAY)))
  const isUrl = (option: Option) => option.argParser(parseOriginUrl)
  gateway('--url <url>', 'URL of the gateway', isUrl)
  gateway('--key <key>', 'API key for the requests; - reads it from standard input')
  gateway(
    '--header <header>',
    "header for the requests, as in 'authorization: Bearer …'; can be repeated",
    option => option.argParser(parseHeader),
  )
  gateway('--path <path>', 'path of the requests; a burst uses up the tightest of its limits', option =>
    option.default('/', '/').argParser(parsePath),
  )
  gateway('--origin <url>', 'URL of the origin, to find out whether it answers without the gateway', isUrl)
  command
    .option('--json', JSON_HELP)
    .option('--yes', YES_HELP)
    .addHelpText('after', MEANING)
    .action(doctor.bind(null, load))
  return withExamples(
    command,
    ...[
      'doctor',
      'doctor --load 20/s --for 60s',
      'doctor --url https://gateway.example.com --key - --path /demo',
    ],
  )
}

const STORE = 'A store:'
const GATEWAY = 'A deployed gateway:'

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
  const [, count] = /^(\d{1,3})\/s$/.exec(text) ?? []
  if (Number(count) >= 1 && Number(count) <= 500) return Number(count)
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
  const headers: Record<string, string> = Object.fromEntries([
    ...(key ? [['x-api-key', key]] : []),
    ...(flags.header ?? []),
  ])
  const rest = url === undefined || flags.store !== undefined ? storeOf(flags) : undefined
  const load = flags.load === undefined ? undefined : { perSecond: flags.load, seconds: flags.for }
  // Imported here, because other commands do not need them.
  const { examineStore } = await import('../doctor/examine-store.ts')
  const { examinedRestStore } = await import('../doctor/examined-store.ts')
  const { gatewayChecks } = await import('../doctor/gateway.ts')
  if (load && rest) {
    console.error((await import('../doctor/load.ts')).costOfLoad(config, load))
    await mustConfirm('Start the load?', flags)
  }
  const hide = hiderOf([rest?.url, rest?.token, url, origin, ...Object.values(headers)])
  const stop = stopOnSignals()
  const note = (checked: Checked) => flags.json || console.log(lineOf(hide(checked)))
  const examination = { isStopped: stop.isStopped, note }
  const all: Checked[] = []
  try {
    if (rest) {
      const open = (environment: string) => examinedRestStore(rest, config, environment)
      all.push(...(await examineStore({ url: rest.url, open, config, load }, examination)))
    }
    if (url)
      all.push(...(await runChecks(gatewayChecks({ url, path, headers, origin, config }), examination)))
  } finally {
    stop.end()
  }
  const document = hide(doctorDocument(all, stop.isStopped()))
  console.log(flags.json ? JSON.stringify(document, null, 2) : `\n${verdictText(hide(all))}`)
  fail(document.verdict, stop.isStopped())
}

function storeOf({ store, token }: Flags): { url: string; token: string } {
  if (store !== undefined && !isStoreUrl(store))
    throw new AdminError(
      'usage',
      "--store is not valid. Use the http or https URL of the store's REST API, without credentials.",
    )
  return restStore({ ...(store && { url: store }), ...(token && { token }) })
}

/** npx passes signals on, so its command gets each of them twice (ms). */
const SAME_SIGNAL_MS = 1000

/** The first signal ends the examination after the current check, so that the keys are removed; a later one ends the process. */
function stopOnSignals() {
  let stoppedAt: number | undefined
  const onSignal = () => {
    if (stoppedAt !== undefined && performance.now() - stoppedAt > SAME_SIGNAL_MS) process.exit(1)
    if (stoppedAt === undefined) console.error('Stopping: the keys of the examination are removed first.')
    stoppedAt ??= performance.now()
  }
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
  for (const signal of signals) process.on(signal, onSignal)
  const end = () => void signals.map(signal => process.off(signal, onSignal))
  return { isStopped: () => stoppedAt !== undefined, end }
}

/** @throws AdminError unless it works */
function fail(verdict: Overall, isStopped: boolean): void {
  if (isStopped)
    throw new AdminError('refused', 'Stopped before the end, so the verdict is about the checks above.')
  if (verdict === 'do-not-deploy')
    throw new AdminError('refused', 'Do not deploy. Fix what is marked as FAULT, and run this again.')
  if (verdict === 'works-with-limits') throw new AdminError('above', 'It works, with limits.')
}
