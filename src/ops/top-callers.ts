/**
 * Whose requests each rule has refused most, and would have as a shadow, from the records of hours (src/metrics/add-callers.ts). Counts
 * are bounds, because a record has only the most frequent callers of each rule.
 */
import type { CallerMode } from '../config/caller-mode.ts'
import type { Config } from '../config/compile.ts'
import { parseCallers, type RecordedCaller, TEST_SUFFIX, UNNAMED } from '../metrics/recorded-callers.ts'
import { pairs } from '../metrics/sums.ts'
import { callersKey } from '../store/keys.ts'
import { AdminError, type Suggest } from './admin-error.ts'
import type { AdminStore } from './admin-store-shape.ts'
import { DAY_MS, HOUR_MS, MINUTE_MS, timesOf } from './record-times.ts'
import { checkRuleName, listRuleNames } from './stats.ts'

/** Records are kept for eight days, so a whole record of this time is still there (ms). */
export const MAX_CALLERS_BACK_MS = 7 * DAY_MS

/** A pause without refusals that is longer than this begins a new run (min). The script has the same number. */
const MAX_PAUSE_MINUTES = 5

/** The callers of a rule in a record. */
const RECORD_SIZE = 20

/** A caller that a rule has refused. */
export interface RefusedCaller {
  /** `acme`, `192.0.2.0/24`, `account=42`, or `-`. */
  name: string
  /** Set if it was refused with test keys or test tokens. */
  callerMode?: 'test'
  /** It was refused at least that often. */
  atLeast: number
  atMost: number
  /**
   * Refused since then without a pause of more than five minutes. It can have been refused before that, if the records of before had no
   * room for it.
   */
  since: Date
  last: Date
  /** Refusals in the last minutes, at least: [0] in this minute, [1] in the one before, … */
  byMinute: readonly number[]
}

/** The callers of a rule. */
export interface RuleCallers {
  /** In a limit by name `<limit>/<rule>`. */
  rule: string
  mode: 'enforce' | 'shadow'
  /** All refusals of the rule in the records. */
  sum: number
  spread: Spread
  /** The most refused one first. */
  callers: readonly RefusedCaller[]
}

/**
 * - `one caller`: at least half of the refusals are of one caller.
 * - `many callers`: no caller has half of them.
 * - `not known`: at least half of them are of callers that nothing names.
 */
export type Spread = 'one caller' | 'many callers' | 'not known'

export interface TopCallers {
  /** The start of the first record. */
  since: Date
  rules: readonly RuleCallers[]
}

interface HourOfCallers {
  at: Date
  callers: readonly RecordedCaller[]
}

/**
 * Reads the callers of all rules, in one request to the store.
 * @param since the records begin with the hour of this time
 */
export async function readTopCallers(store: AdminStore, since: Date, now = new Date()): Promise<TopCallers> {
  const hours = timesOf(HOUR_MS, since, now)
  const hashes = await store.runEach<readonly string[]>(
    hours.map(at => ['HGETALL', store.at(callersKey(at))]),
  )
  return { since: hours[0]!, rules: callersOf(hours, hashes, now) }
}

/** @param hashes the record of each hour, as a list: field, value, field, value */
export function callersOf(
  hours: readonly Date[],
  hashes: readonly (readonly string[])[],
  now: Date,
): RuleCallers[] {
  const all = new Map<string, HourOfCallers[]>()
  for (const [i, hash] of hashes.entries())
    for (const [counted, text] of pairs(hash)) {
      const callers = parseCallers(text)
      if (callers.length > 0) all.set(counted, [...(all.get(counted) ?? []), { at: hours[i]!, callers }])
    }
  return [...all]
    .flatMap(([counted, hours]): RuleCallers[] => {
      const [kind, rule = ''] = counted.split(' ')
      if (kind !== 'limited' && kind !== 'shadow_limited') return []
      const callers = sumOfHours(hours, now).sort((a, b) => b.atLeast - a.atLeast || b.atMost - a.atMost)
      const sum = hours.flatMap(({ callers }) => callers).reduce((sum, { count }) => sum + count, 0)
      const mode = kind === 'limited' ? 'enforce' : 'shadow'
      return [{ rule, mode, sum, spread: spreadOf(callers, sum), callers }]
    })
    .sort((a, b) => (a.mode === b.mode ? b.sum - a.sum : a.mode === 'enforce' ? -1 : 1))
}

export function spreadOf(callers: readonly Pick<RefusedCaller, 'name' | 'atLeast'>[], sum: number): Spread {
  const most = callers.find(({ atLeast }) => 2 * atLeast >= sum)
  if (!most) return 'many callers'
  return most.name === UNNAMED ? 'not known' : 'one caller'
}

function sumOfHours(hours: readonly HourOfCallers[], now: Date): RefusedCaller[] {
  const names = new Set(hours.flatMap(({ callers }) => callers.map(({ name }) => name)))
  return [...names].map(name => {
    const found: (RecordedCaller & { at: Date })[] = []
    let atLeast = 0
    let atMost = 0
    for (const { at, callers } of hours) {
      const own = callers.find(caller => caller.name === name)
      if (own) {
        found.push({ at, ...own })
        atLeast += own.count - own.error
        atMost += own.count
      } else if (callers.length >= RECORD_SIZE)
        // The record has no more room, so it may have dropped the caller, with at most as many refusals as its smallest count.
        atMost += Math.min(...callers.map(({ count }) => count))
    }
    return { ...callerOf(name), atLeast, atMost, ...lastRunOf(found, now) }
  })
}

function callerOf(recorded: string): Pick<RefusedCaller, 'name' | 'callerMode'> {
  if (!recorded.endsWith(TEST_SUFFIX)) return { name: recorded }
  return { name: recorded.slice(0, -TEST_SUFFIX.length), callerMode: 'test' }
}

/** The mode in which a caller was refused. */
export const modeOfRefused = ({ callerMode }: Pick<RefusedCaller, 'callerMode'>): CallerMode =>
  callerMode ?? 'live'

/** @param found in the order of time */
function lastRunOf(
  found: readonly (RecordedCaller & { at: Date })[],
  now: Date,
): Pick<RefusedCaller, 'since' | 'last' | 'byMinute'> {
  const minuteOf = (at: Date, minute: number) => at.getTime() / MINUTE_MS + minute
  const runs = found.map(({ at, since, minutes }) => ({
    since: minuteOf(at, since),
    last: minuteOf(at, minutes.at(-1)![0]),
  }))
  let { since, last } = runs.at(-1)!
  for (const run of runs.reverse()) {
    if (since - run.last > MAX_PAUSE_MINUTES) break
    since = run.since
  }
  const nowMinute = Math.floor(now.getTime() / MINUTE_MS)
  const byMinute: number[] = Array(MAX_PAUSE_MINUTES + 1).fill(0)
  for (const { at, minutes } of found.slice(-2))
    for (const [minute, count] of minutes) {
      // Of an isolate whose clock is ahead: now.
      const ago = Math.max(0, nowMinute - minuteOf(at, minute))
      if (ago < byMinute.length) byMinute[ago]! += count
    }
  return { since: new Date(since * MINUTE_MS), last: new Date(last * MINUTE_MS), byMinute }
}

export interface TopCallersQuery {
  mode: 'enforce' | 'shadow'
  rule?: string | undefined
  now: Date
  suggest?: Suggest
}

/** The rules of one mode, and of one name if it is given. @throws AdminError `refused` if the config counts no callers; `not-found` */
export async function readTopCallersOf(
  store: AdminStore,
  config: Pick<Config, 'stats' | 'rules' | 'shedding' | 'limits'>,
  since: Date,
  { mode, rule, now, suggest }: TopCallersQuery,
): Promise<TopCallers> {
  if (!config.stats?.topCallers)
    throw new AdminError(
      'refused',
      'The config counts no callers. Remove stats.topCallers and stats.keep from it.',
    )
  const read = await readTopCallers(store, since, now)
  const rules = read.rules.filter(each => each.mode === mode && (rule === undefined || each.rule === rule))
  if (rule !== undefined && rules.length === 0) checkRuleName(rule, listRuleNames(config), suggest)
  return { since: read.since, rules }
}
