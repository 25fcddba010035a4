/** What rules refuse now, and whom: the last five minutes, and whether it gets better or worse. One request to the store. */
import { sumFields } from '../metrics/sums.ts'
import { callersKey, SWITCHES_KEY, statsKey } from '../store/keys.ts'
import { dropExpired, parseSwitches, type Switches } from '../switches/switches.ts'
import type { AdminStore } from './admin-store-shape.ts'
import { DAY_MS, HOUR_MS, MINUTE_MS, timesOf } from './record-times.ts'
import { countsBetween, type Stats } from './stats.ts'
import { sumByOutcome, sumByRule } from './sum-stats.ts'
import { callersOf, type RefusedCaller, type Spread, spreadOf } from './top-callers.ts'

/**
 * The last minute or more (this minute and the one before) against the four minutes before. A difference counts if it is more than a
 * quarter, and more than chance: twice the square root of what the four minutes let expect.
 */
export type Trend = 'new' | 'worse' | 'steady' | 'better' | 'over'

/** What was counted in the last five minutes. */
export interface Counted {
  count: number
  /** In the last minute, on average of this minute and the one before. */
  perMinute: number
  trend: Trend
}

export interface Top {
  at: Date
  /** How long the store took to answer (ms). */
  storeMs: number
  requests: readonly (Counted & { outcome: string; cause: string })[]
  calls: readonly (Counted & { limit: string; outcome: string; cause: string })[]
  /** Rules that have refused requests, or would have as shadows; the most refusals first. */
  rules: readonly TopRule[]
  switches: Switches
}

export interface TopRule extends Counted {
  rule: string
  mode: 'enforce' | 'shadow'
  /** Verdicts, refusals among them. */
  sum: number
  /** Absent: no caller is on record. */
  spread?: Spread
  callers: readonly (Counted & Pick<RefusedCaller, 'name' | 'callerMode' | 'since'>)[]
}

/** Before this minute and the one before it. */
const MINUTES_BEFORE = 4

export async function readTop(store: AdminStore, now = new Date()): Promise<Top> {
  const minute = (ago: number) => new Date(now.getTime() - ago * MINUTE_MS)
  const days = timesOf(DAY_MS, minute(MINUTES_BEFORE + 1), now)
  const hours = timesOf(HOUR_MS, minute(MINUTES_BEFORE + 1), now)
  const keys = [...days.map(statsKey), ...hours.map(callersKey), SWITCHES_KEY] as const
  const startedAt = performance.now()
  const replies = await store.runEach(
    keys.map(key => [key === SWITCHES_KEY ? 'GET' : 'HGETALL', store.at(key)]),
  )
  const storeMs = performance.now() - startedAt
  const records = replies.slice(0, days.length) as string[][]
  const hashes = replies.slice(days.length, -1) as string[][]
  // Of this minute only the part that has passed.
  const recentMinutes = 1 + (now.getTime() % MINUTE_MS) / MINUTE_MS
  const counted = (recent: number, before: number) => countedOf(recent, before, recentMinutes)
  const between = (first: Date, last: Date) =>
    sumFields(records.flatMap((record, i) => countsBetween(record, days[i]!, 'minute', first, last)))
  // The clock of an isolate can be a minute ahead.
  const recent = between(minute(1), minute(-1))
  const before = between(minute(MINUTES_BEFORE + 1), minute(2))
  const switches = dropExpired(parseSwitches(replies.at(-1) as string | null), now.getTime())
  return {
    ...{ at: now, storeMs, switches },
    ...outcomesOf(recent, before, counted),
    rules: rulesOf(recent, before, callersOf(hours, hashes, now), counted),
  }
}

type Sums = Omit<Stats, 'since' | 'unit'>
type Count = (recent: number, before: number) => Counted

function outcomesOf(recent: Sums, before: Sums, counted: Count): Pick<Top, 'requests' | 'calls'> {
  const outcomes = sumByOutcome([...recent.requests, ...before.requests])
  const count = <T extends { outcome: string; cause: string; count: number }>(
    rows: readonly T[],
    like: Partial<T>,
  ) =>
    rows
      .filter(row => Object.entries(like).every(([name, value]) => row[name as keyof T] === value))
      .reduce((sum, { count }) => sum + count, 0)
  const calls = new Map(
    [...recent.calls, ...before.calls].map(({ count: _, ...call }) => [JSON.stringify(call), call]),
  )
  // A record of a day has also what was counted before these minutes.
  const hasTraffic = ({ count }: Counted) => count > 0
  return {
    requests: outcomes
      .map(({ outcome, cause }) => ({
        ...{ outcome, cause },
        ...counted(count(recent.requests, { outcome, cause }), count(before.requests, { outcome, cause })),
      }))
      .filter(hasTraffic),
    calls: [...calls.values()]
      .map(call => ({ ...call, ...counted(count(recent.calls, call), count(before.calls, call)) }))
      .filter(hasTraffic),
  }
}

function rulesOf(
  recent: Sums,
  before: Sums,
  callers: ReturnType<typeof callersOf>,
  counted: Count,
): TopRule[] {
  const all = sumByRule([...recent.rules, ...before.rules], [])
  const modes = [
    ['enforce', 'limited', 'allowed'],
    ['shadow', 'shadowLimited', 'shadowAllowed'],
  ] as const
  return all
    .flatMap(({ rule }) =>
      modes.flatMap(([mode, refused, admitted]): TopRule[] => {
        const sum = (of: Sums, what: typeof refused | typeof admitted) =>
          of.rules.filter(each => each.rule === rule).reduce((sum, each) => sum + each[what], 0)
        const total = counted(sum(recent, refused), sum(before, refused))
        if (total.count === 0) return []
        const own = callers.find(each => each.rule === rule && each.mode === mode)?.callers ?? []
        const current = own
          .map(({ name, callerMode, since, byMinute }) => ({
            ...{ name, ...(callerMode && { callerMode }), since },
            ...counted(sumOf(byMinute.slice(0, 2)), sumOf(byMinute.slice(2))),
          }))
          .filter(({ count }) => count > 0)
          .sort((a, b) => b.count - a.count)
        const bounds = current.map(({ name, count }) => ({ name, atLeast: count }))
        return [
          {
            ...{ rule, mode, ...total },
            sum: total.count + sum(recent, admitted) + sum(before, admitted),
            ...(current.length > 0 && { spread: spreadOf(bounds, total.count) }),
            callers: current,
          },
        ]
      }),
    )
    .sort((a, b) => b.count - a.count)
}

const sumOf = (counts: readonly number[]) => counts.reduce((sum, count) => sum + count, 0)

/** @param recentMinutes how long the recent time is, 1 to 2 */
function countedOf(recent: number, before: number, recentMinutes: number): Counted {
  return {
    count: recent + before,
    perMinute: recent / recentMinutes,
    trend: trendOf(recent, (before * recentMinutes) / MINUTES_BEFORE),
  }
}

function trendOf(recent: number, expected: number): Trend {
  if (expected === 0) return recent === 0 ? 'steady' : 'new'
  if (recent === 0) return 'over'
  const ratio = recent / expected
  const isChance = Math.abs(recent - expected) <= 2 * Math.sqrt(expected)
  if (isChance || (ratio < 1.25 && ratio > 0.75)) return 'steady'
  return ratio > 1 ? 'worse' : 'better'
}
