/** `npx sluicegate doctor`: finds out whether Sluice works on this store. */
import { Command, InvalidArgumentError, Option } from 'commander'
import { parseDuration } from '../../config/duration.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { PRICES } from '../../ops/prices.ts'
import { type Checked, overallOf, runChecks } from '../doctor/checks.ts'
import type { Load } from '../doctor/load.ts'
import type { StoreAddress } from '../doctor/store.ts'
import type { ServeVariables } from '../serve/serve-store.ts'
import { JSON_HELP, mustConfirm, secretOf, YES_HELP } from './administration.ts'
import { parseHeader, parseOriginUrl, restStore } from './arguments.ts'
import { withExamples } from './help.ts'
import type { ConfigLoader } from './load-config.ts'
import { redisUrlOf } from './open-store.ts'
import { alert, jsonText, printableLines, success, warning } from './output.ts'

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
      new Option('--for <duration>', 'duration of the load').default(60, '60s').argParser(parseLoadSeconds),
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
    .option('--path <path>', 'path of the requests; a burst uses up its tightest limit', '/')
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

function parseRate(text: string): number {
  const rate = Number(/^(\d+)\/s$/.exec(text)?.[1])
  if (rate >= 1 && rate <= 500) return rate
  throw new InvalidArgumentError('Use 1/s to 500/s.')
}

function parseLoadSeconds(text: string): number {
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
  // Imported here, because other commands do not need them.
  const { examineStore } = await import('../doctor/store.ts')
  const { gatewayChecks } = await import('../doctor/gateway.ts')
  const load = store && loadOf(store, flags)
  if (load) {
    console.error((await import('../doctor/load.ts')).costOfLoad(config, load))
    await mustConfirm('Start the load?', flags)
  }
  let isStopped = false
  const stop = () => {
    // npx passes signals on, so its command gets each of them twice.
    if (!isStopped) console.error('Stopping: the keys of the examination are removed first.')
    isStopped = true
  }
  for (const signal of SIGNALS) process.on(signal, stop)
  const all: Checked[] = []
  const note = (checked: Checked) => {
    all.push(checked)
    if (!flags.json) console.log(lineOf(checked))
  }
  const examination = { isStopped: () => isStopped, note }
  try {
    if (store) await examineStore(store, config, examination, { load })
    if (url) await runChecks(gatewayChecks({ url, path, headers, origin, config }), examination, 'gateway')
  } finally {
    for (const signal of SIGNALS) process.off(signal, stop)
  }
  const document = doctorDocument(all, isStopped)
  console.log(flags.json ? jsonText(document, 2) : `\n${verdictText(all)}`)
  if (isStopped)
    throw new AdminError('refused', 'Stopped before the end, so the verdict is about the checks above.')
  if (document.verdict === 'do-not-deploy')
    throw new AdminError('refused', 'Do not deploy. Fix what is marked as FAULT, and run this again.')
  if (document.verdict === 'works-with-limits') throw new AdminError('above', 'It works, with limits.')
}

/** The first of them ends the examination after the current check, so that the keys are removed. */
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/** The store of `--store`, or that of `serve`, which does not choose between two. */
async function storeOf({ store: url, token }: Flags): Promise<StoreAddress> {
  const { storeKindOf } = await import('../serve/serve-store.ts')
  if (url === undefined) storeKindOf(process.env as ServeVariables)
  const redisUrl = redisUrlOf({ url, token })
  return redisUrl === undefined ? restStore({ url, token }, '--store') : { url: redisUrl }
}

function loadOf({ url }: StoreAddress, { load: perSecond, for: seconds }: Flags): Load | undefined {
  const isBilled = URL.canParse(url) && new URL(url).hostname.endsWith('.upstash.io')
  return perSecond === undefined ? undefined : { perSecond, seconds, isBilled }
}

const MARKS = { ok: 'ok    ', limit: warning('limit '), fault: alert('FAULT '), unknown: '?     ' }

/** A check, as it is printed when it is done. */
export function lineOf({ name, verdict, finding, fix }: Checked): string {
  // Findings can have text of the store or of the gateway.
  const line = `${MARKS[verdict]} ${name.padEnd(16)} ${printableLines(finding)}`
  return fix ? `${line}\n${' '.repeat(24)}${printableLines(fix)}` : line
}

const VERDICTS = {
  works: success('works'),
  'works-with-limits': warning('works, with these limits'),
  'do-not-deploy': alert('do not deploy'),
}

/** The verdict, with what it rests on: faults first. */
export function verdictText(all: readonly Checked[]): string {
  const found = (['fault', 'limit'] as const).flatMap(kind => all.filter(({ verdict }) => verdict === kind))
  const unknown = all.filter(({ verdict }) => verdict === 'unknown').map(({ name }) => name)
  return [
    `Verdict: ${VERDICTS[overallOf(all)]}${found.length > 0 ? ':' : unknown.length > 0 ? ', as far as could be found out.' : '.'}`,
    ...found.flatMap(({ name, finding, fix }) => [
      `  ${name}: ${printableLines(finding)}`,
      `    Fix: ${printableLines(String(fix))}`,
    ]),
    ...(unknown.length > 0 ? [`Not found out: ${unknown.join(', ')}.`] : []),
  ].join('\n')
}

/** Its fields stay. New ones may be added. */
export const doctorDocument = (all: readonly Checked[], isStopped: boolean) => ({
  ...{ verdict: overallOf(all), stopped: isStopped, prices_of: PRICES.date },
  checks: all.map(({ fix = null, measured = {}, ...each }) => ({ ...each, fix, measured })),
})
