/** Counts by rule, and by outcome of requests and of calls of limits by name, from the records of minutes, hours or days. */
import type { Config } from '../config/compile.ts'
import { parseDuration } from '../config/duration.ts'
import { mostRefused, recentHours } from '../metrics/recorded-callers.ts'
import {
  type Count,
  countsIn,
  countsOfPart,
  type Hash,
  highestIn,
  type MeasuredSums,
  type Sums,
  sumFields,
  sumMeasurements,
} from '../metrics/sums.ts'
import { callersKey, STATS_TOTAL_KEY, statsKey } from '../store/keys.ts'
import { type Suggest, unknownName } from './admin-error.ts'
import type { AdminStore } from './admin-store-shape.ts'
import { namedRules } from './named-rules.ts'
import { DAY_MS, HOUR_MS, MAX_CLOCK_LEAD_MS, MINUTE_MS, timesOf } from './record-times.ts'

export type { CallCount, RequestCount, RuleCounts } from '../metrics/sums.ts'

export interface Stats extends Sums {
  /** The start of the first record. */
  since: Date
  /** What the records are about. */
  unit: StatsUnit
}

/** What the statistics were read by. */
export type StatsUnit = 'minute' | 'hour' | 'day'

const UNIT_MS: Record<StatsUnit, number> = { minute: MINUTE_MS, hour: HOUR_MS, day: DAY_MS }

/** `npx sluicegate stats` looks back at most this far (ms): the records of days. */
export const MAX_LOOK_BACK_MS = 400 * DAY_MS

/** How far to look back, from 1m to 400d. @returns ms, or undefined for another text */
export function parseLookBack(text: string): number | undefined {
  const ms = (parseDuration(text) ?? 0) / 1e3
  return ms >= MINUTE_MS && ms <= MAX_LOOK_BACK_MS ? ms : undefined
}

/**
 * Reads minutes if records have them that far back, else hours, else days.
 * @param since the statistics begin with the minute, the hour or the day of this time
 */
export const readStats = (store: AdminStore, since: Date, now = new Date()): Promise<Stats> =>
  readStatsBy(sumFields, store, since, now)

/** As `readStats`. @param sum what sums the counters: `sumCounts`, if the rules of the config reserve nothing */
export async function readStatsBy(
  sum: typeof sumFields,
  store: AdminStore,
  since: Date,
  now: Date,
): Promise<Stats> {
  const backMs = now.getTime() - since.getTime()
  // Records have minutes for two hours, and hours for seven days.
  const unit = backMs <= 2 * HOUR_MS ? 'minute' : backMs <= 7 * DAY_MS ? 'hour' : 'day'
  const days = timesOf(DAY_MS, since, now)
  const records = await store.runEach<Hash>(days.map(day => ['HGETALL', store.at(statsKey(day))]))
  const first = timesOf(UNIT_MS[unit], since, now)[0]!
  const last = new Date(now.getTime() + MAX_CLOCK_LEAD_MS)
  const counts = records.flatMap((record, i) =>
    unit === 'day' ? countsIn(record) : countsBetween(record, days[i]!, unit, first, last),
  )
  return { since: first, unit, ...sum(counts) }
}

/** What the record of a day has from one time to another, in whole minutes or hours. */
export function countsBetween(
  record: Hash,
  day: Date,
  unit: 'minute' | 'hour',
  first: Date,
  last: Date,
): Count[] {
  const placeOf = (at: Date) => Math.floor((at.getTime() - day.getTime()) / UNIT_MS[unit])
  return countsOfPart(record, unit === 'minute' ? 'm' : 'h', placeOf(first), placeOf(last))
}

/** The counters of all time, and what only metrics have. They do not restart, unless the store loses them. */
export async function readTotals(
  store: AdminStore,
  now = new Date(),
): Promise<{ sums: Sums; measured: MeasuredSums }> {
  const hours = recentHours(now.getTime())
  const keys = [STATS_TOTAL_KEY, ...hours.map(callersKey)]
  const [record, ...callers] = await store.runEach<Hash>(keys.map(key => ['HGETALL', store.at(key)]))
  const totals = countsIn(record!)
  const measured = sumMeasurements(totals, highestIn(record!, Math.floor(now.getTime() / MINUTE_MS) - 1))
  const refused = mostRefused(hours, callers, now.getTime())
  return { sums: sumFields(totals), measured: { ...measured, mostRefused: refused } }
}

/**
 * The statistics with the counts of one rule only.
 * @param names the rules of the config
 * @throws AdminError `not-found` for a rule that is neither in the config nor in the statistics
 */
export function filterByRule(stats: Stats, rule: string, names: readonly string[], suggest?: Suggest): Stats {
  const rules = stats.rules.filter(counts => counts.rule === rule)
  const { reservations = {}, ...others } = stats
  const own = reservations[rule]
  if (rules.length === 0) checkRuleName(rule, names, suggest)
  return { ...others, rules, ...(own && { reservations: { [rule]: own } }) }
}

/** The names of all rules, in the order of namedRules. */
export const listRuleNames = (config: Pick<Config, 'rules' | 'shedding' | 'limits'>): string[] => [
  ...new Set(namedRules(config).map(({ name }) => name)),
]

/** @throws AdminError `not-found` for a rule that is not in the config */
export function checkRuleName(rule: string, names: readonly string[], suggest?: Suggest): void {
  if (names.includes(rule)) return
  throw unknownName('not-found', `The config has no rule '${rule}'.`, rule, ['Rules', names], suggest)
}
