/** `npx sluicegate stats`: what rules have done, and what shadows would have. */
import { Command, InvalidArgumentError, Option } from 'commander'
import { didYouMean } from '../../config/check/did-you-mean.ts'
import type { Config } from '../../config/compile.ts'
import { formatDuration } from '../../config/duration.ts'
import { prometheusText, startOfDay } from '../../metrics/prometheus.ts'
import { AdminError } from '../../ops/admin-error.ts'
import type { AdminStore } from '../../ops/admin-store.ts'
import { statsDocument, topCallersDocument } from '../../ops/documents/stats.ts'
import { readLoadIfPermitted } from '../../ops/origin-load.ts'
import { filterByRule, listRuleNames, parseLookBack, readStats, readTotals } from '../../ops/stats.ts'
import {
  type Bound,
  type BoundCheck,
  checkBounds,
  checkWord,
  formatCheck,
  parseBound,
} from '../../ops/stats-bounds.ts'
import { MAX_CALLERS_BACK_MS, readTopCallersOf } from '../../ops/top-callers.ts'
import { addStoreOptions, openStore, type StoreFlags } from './administration.ts'
import { withExamples } from './help.ts'
import type { ConfigLoader } from './load-config.ts'
import { loadTexts } from './load-output.ts'
import { print } from './output.ts'
import { type StatsFilter, statsText } from './stats-output.ts'
import { topCallersText } from './top-output.ts'

interface Flags extends StoreFlags, StatsFilter {
  since: number
  failAbove?: Bound[]
  prometheus?: boolean
  top?: 'consumers'
  shadow?: boolean
}

const DAY_MS = 86400e3

export function statsCommand(load: ConfigLoader): Command {
  const command = addStoreOptions(new Command('stats'))
    .summary('show what was decided')
    .description(
      'Show what each rule decided, what shadow rules and candidates would have decided, the outcomes of requests, and the load of the origin now.',
    )
    .addOption(
      new Option(
        '--since <duration>',
        'how far back, from 1m to 400d: up to 2h in whole minutes, up to 7d in hours, else in days (UTC)',
      )
        .default(DAY_MS, '24h')
        .argParser(lookBack),
    )
    .option('--rule <name>', 'show only this rule')
    .addOption(
      new Option('--by <part>', 'show each rule by route, by plan, or by the mode of the caller').choices([
        'route',
        'plan',
        'mode',
      ]),
    )
    .addOption(
      new Option('--top <what>', 'show whom each rule has refused most, up to 7d back, by the hour')
        .choices(['consumers'])
        .conflicts(['by', 'failAbove', 'prometheus']),
    )
    .option('--shadow', 'with --top: whom shadow rules would have refused')
    .addOption(
      new Option(
        '--fail-above <bound>',
        "exit with 3 if a share is above a bound, as in 'degraded>0.1%'; can be repeated",
      ).argParser((text, before: Bound[] = []) => [...before, parseBound(text)]),
    )
    .addOption(
      new Option(
        '--prometheus',
        'print counters since midnight (UTC), with metrics: {} since their beginning, and the load of the origin as text for Prometheus',
      ).conflicts(['json', 'since', 'by', 'rule', 'failAbove']),
    )
    .addHelpText('after', MEANING)
    .action(stats.bind(null, load))
  return withExamples(
    command,
    'stats --since 10m',
    "stats --since 10m --fail-above 'degraded>0.1%'",
    'stats --rule consumer-minute --by plan',
    'stats --top consumers --rule consumer-minute --since 1h',
  )
}

const MEANING = `
Outcomes:
  allowed          passed to the origin
  limited          refused by a rule (429)
  shed             refused because the system was full (503)
  failed_open      passed without the store
  failed_closed    refused because the store did not decide (503)
  unauthenticated  no valid credential (401)
  forbidden        blocked (403)
  unverifiable     the issuer of the token did not answer (503)

For requests that were decided without the store, the cause is shown. Preflights and requests to
/_sluice/ are not counted. Each rule is counted by its own verdict, whatever other rules decided about
the request.

Bounds of --fail-above are for the share of an outcome, of a cause, or of 'degraded' (any cause) of all
requests, and of the calls of each limit by name. With --rule: of 'limited', 'shadow_limited' or
'disagreed' of its verdicts. The shares that are above go to standard error, and the exit code is 3.
Without any requests, no share is above. If the store does not answer, the exit code is 1.`

function lookBack(text: string): number {
  const milliseconds = parseLookBack(text)
  if (milliseconds !== undefined) return milliseconds
  throw new InvalidArgumentError('Use a duration from 1m to 400d.')
}

export function checkFlags({ failAbove = [], rule, shadow, top }: Partial<Flags>): void {
  for (const bound of failAbove) checkWord(bound, rule)
  if (shadow && !top) throw new AdminError('usage', '--shadow needs --top consumers. Add it.')
}

async function stats(load: ConfigLoader, flags: Flags): Promise<void> {
  checkFlags(flags)
  if (flags.top) return await topCallers(load, flags)
  const { store, config } = await openStore(flags, load)
  if (flags.prometheus) return void process.stdout.write(await textForPrometheus(store, config))
  const now = new Date()
  const all = await readStats(store, new Date(now.getTime() - flags.since), now)
  const names = listRuleNames(config)
  const counted = flags.rule === undefined ? all : filterByRule(all, flags.rule, names, didYouMean)
  const current = flags.rule === undefined ? await readLoadIfPermitted(store, config, noteOfLoad) : {}
  const checks = flags.failAbove && checkBounds(counted, flags.failAbove, flags.rule)
  print(flags, statsDocument(counted, current, checks), () =>
    [statsText(counted, flags, names, config), ...loadTexts(current)].join('\n\n'),
  )
  reportChecks(checks, flags)
}

/** @throws AdminError if a share is above its bound */
export function reportChecks(checks: readonly BoundCheck[] | undefined, { json }: { json?: boolean }): void {
  const above = checks?.filter(({ isAbove }) => isAbove) ?? []
  if (above.length > 0) throw new AdminError('above', above.map(formatCheck).join('\n'))
  if (checks && !json) console.log(`\nNo share is above:\n${checks.map(formatCheck).join('\n')}`)
}

async function topCallers(load: ConfigLoader, flags: Flags): Promise<void> {
  if (flags.since > MAX_CALLERS_BACK_MS)
    throw new AdminError(
      'usage',
      `--since ${formatDuration(flags.since * 1e3)}: callers are kept for 8 days. Use at most 7d with --top.`,
    )
  const { store, config } = await openStore(flags, load)
  const now = new Date()
  const { since, rules } = await readTopCallersOf(store, config, new Date(now.getTime() - flags.since), {
    ...{ mode: flags.shadow ? 'shadow' : 'enforce', rule: flags.rule, now, suggest: didYouMean },
  })
  print(flags, topCallersDocument({ since, rules }), () => topCallersText(rules, { since, now }, flags))
}

async function textForPrometheus(store: AdminStore, config: Config): Promise<string> {
  const load = await readLoadIfPermitted(store, config, noteOfLoad)
  if (!config.metrics) return prometheusText(await readStats(store, startOfDay(new Date())), load)
  const { sums, measured } = await readTotals(store)
  return prometheusText(sums, load, measured)
}

const noteOfLoad = ({ message }: AdminError) =>
  void process.stderr.write(`The load of the origin is not shown. ${message}\n`)
