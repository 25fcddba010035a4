/** `npx sluicegate stats`: what rules have done, and what shadows would have. */
import { Command, InvalidArgumentError, Option } from 'commander'
import type { Config } from '../../config/compile.ts'
import { parseDuration } from '../../config/duration.ts'
import { prometheusText, startOfDay } from '../../ops/prometheus.ts'
import { filterByRule, readStats } from '../../ops/stats.ts'
import { onStore, openStore, type StoreFlags } from './administration.ts'
import type { ConfigLoader } from './load-config.ts'
import { print } from './output.ts'
import { type Shown, statsText } from './stats-output.ts'

interface Flags extends StoreFlags, Shown {
  since: number
  prometheus?: boolean
}

const DAY_MS = 86400e3

export function statsCommand(load: ConfigLoader): Command {
  return onStore(new Command('stats'))
    .description(
      'What rules have done, what shadows and candidates would have, and what was decided about requests.',
    )
    .addOption(
      new Option('--since <duration>', 'how far back, from 1h to 7d; whole hours')
        .default(DAY_MS, '24h')
        .argParser(lookBack),
    )
    .option('--rule <name>', 'only this rule')
    .addOption(new Option('--by <part>', 'each rule by this').choices(['route', 'plan']))
    .addOption(
      new Option('--prometheus', 'text for Prometheus: counters since midnight (UTC)').conflicts([
        'json',
        'since',
        'by',
        'rule',
      ]),
    )
    .addHelpText('after', MEANING)
    .action(stats.bind(null, load))
}

const MEANING = `
A request has one outcome: allowed; limited (429); shed (503), since the system was full; failed_open or failed_closed (503) where
the store has not decided it; unauthenticated (401); forbidden (403); unverifiable (503: a token's issuer does not answer). What
was decided without the store has a cause. Preflights and /_sluice/ are not counted. A rule is counted by its own verdict wherever
it applied, whatever the others said.`

function lookBack(text: string): number {
  const milliseconds = (parseDuration(text) ?? 0) / 1e3
  if (milliseconds >= 3600e3 && milliseconds <= 7 * DAY_MS) return milliseconds
  throw new InvalidArgumentError('Write a duration from 1h to 7d.')
}

async function stats(load: ConfigLoader, flags: Flags): Promise<void> {
  const { store, config } = await openStore(flags, load)
  const now = new Date()
  const since = flags.prometheus ? startOfDay(now) : new Date(now.getTime() - flags.since)
  const all = await readStats(store, since, now)
  // Those that are off too, which may have been on.
  const names = namesOfRules(config)
  const counted = flags.rule === undefined ? all : filterByRule(all, flags.rule, names)
  if (flags.prometheus) return void process.stdout.write(prometheusText(counted))
  print(flags, counted, () => statsText(counted, flags, names, config))
}

/** In the order of the config, the shedders last. */
function namesOfRules({ rules, shedding }: Pick<Config, 'rules' | 'shedding'>): string[] {
  const all = [...rules, ...(shedding?.workerUtilization?.rules ?? [])]
  return [...new Set(all.map(({ name }) => name))]
}
