/** Counts by rule, and by outcome of requests and of calls of limits by name, from the records of minutes, hours or days. */
import { didYouMean } from '../config/check/did-you-mean.ts'
import { type StatsUnit, statsKey } from '../store/keys.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store.ts'

/** Verdicts of a rule, in a limit by name `<limit>/<rule>`. Labels are those of src/metrics/counters.ts: `-` means none, `~` that the table of counters was full. */
export interface RuleCounts {
  rule: string
  route: string
  plan: string
  allowed: number
  limited: number
  shadowAllowed: number
  shadowLimited: number
  /** Verdicts of a candidate that agreed with the rule that it would replace. */
  agreed: number
  disagreed: number
}

export interface RequestCount {
  outcome: string
  cause: string
  route: string
  count: number
}

/** Calls of a limit by name. */
export interface CallCount {
  limit: string
  outcome: string
  cause: string
  count: number
}

export interface Stats {
  /** The start of the first record. */
  since: Date
  /** What the records are about. */
  unit: StatsUnit
  rules: readonly RuleCounts[]
  requests: readonly RequestCount[]
  /** Requests that the isolate decided without a trip to the store, by the source of the decision. */
  withoutTrip: Readonly<Partial<Record<string, number>>>
  /** How many of the requests came from test callers, by their outcome. */
  test: Readonly<Partial<Record<string, number>>>
  /** Requests whose counters may not have arrived. */
  lost: number
  /** Not part of `requests`. */
  calls: readonly CallCount[]
  callsWithoutTrip: Readonly<Partial<Record<string, number>>>
  lostCalls: number
}

const MINUTE_MS = 60e3
const HOUR_MS = 60 * MINUTE_MS
const UNIT_MS: Record<StatsUnit, number> = { minute: MINUTE_MS, hour: HOUR_MS, day: 24 * HOUR_MS }

/** How far back the records of minutes and of hours go (ms). */
const MAX_BACK_MS = { minute: 2 * HOUR_MS, hour: 7 * UNIT_MS.day }

/** `npx sluicegate stats` looks back at most this far (ms): the records of days. */
export const MAX_LOOK_BACK_MS = 400 * UNIT_MS.day

/**
 * Reads the shortest records that go back that far.
 * @param since the statistics begin with the minute, the hour or the day of this time
 */
export async function readStats(store: AdminStore, since: Date, now = new Date()): Promise<Stats> {
  const backMs = now.getTime() - since.getTime()
  const unit = backMs <= MAX_BACK_MS.minute ? 'minute' : backMs <= MAX_BACK_MS.hour ? 'hour' : 'day'
  const times = timesOf(unit, since, now)
  // Nothing is deserialized, so a hash is a list: field, value, field, value.
  const hashes = await store.runEach<Date, readonly string[]>(times, (pipeline, at) =>
    pipeline.hgetall(store.at(statsKey(at, unit))),
  )
  return { since: times[0]!, unit, ...sumRecords(hashes) }
}

/** Adds up records. @param hashes each as a list: field, value, field, value */
export const sumRecords = (hashes: readonly (readonly string[])[]) => sumFields(hashes.flatMap(pairs))

/** How far the clock of an isolate can be ahead of this one (ms): its counters are in the record of its own minute. */
const MAX_CLOCK_LEAD_MS = 60e3

/** The start of each minute, hour or day since a time. */
function timesOf(unit: StatsUnit, since: Date, now: Date): Date[] {
  const ms = UNIT_MS[unit]
  const first = Math.floor(since.getTime() / ms)
  const last = Math.floor((now.getTime() + MAX_CLOCK_LEAD_MS) / ms)
  return Array.from({ length: last - first + 1 }, (_, i) => new Date((first + i) * ms))
}

type Count = [field: string, count: number]

function pairs(hash: readonly string[]): Count[] {
  return Array.from({ length: hash.length / 2 }, (_, i) => [hash[2 * i]!, Number(hash[2 * i + 1])])
}

function sumFields(fields: readonly Count[]): Omit<Stats, 'since' | 'unit'> {
  const rules = new Map<string, RuleCounts>()
  const requests = new Map<string, RequestCount>()
  const calls = new Map<string, CallCount>()
  const withoutTrip: Record<string, number> = {}
  const test: Record<string, number> = {}
  const callsWithoutTrip: Record<string, number> = {}
  let lost = 0
  let lostCalls = 0
  for (const [field, count] of fields) {
    const [kind, outcome = '', ...labels] = field.split(' ')
    const name = labels.join(' ')
    if (kind === 'lost') lost += count
    if (kind === 'lost-calls') lostCalls += count
    if (kind === 'without-trip') withoutTrip[outcome] = (withoutTrip[outcome] ?? 0) + count
    if (kind === 'test') test[outcome] = (test[outcome] ?? 0) + count
    if (kind === 'call-without-trip') callsWithoutTrip[outcome] = (callsWithoutTrip[outcome] ?? 0) + count
    if (kind === 'call') {
      const [cause = '', limit = ''] = labels
      const sum = calls.get(`${outcome} ${name}`)?.count ?? 0
      calls.set(`${outcome} ${name}`, { limit, outcome, cause, count: sum + count })
    }
    if (kind === 'request') {
      const [cause = '', route = ''] = labels
      const sum = requests.get(`${outcome} ${name}`)?.count ?? 0
      requests.set(`${outcome} ${name}`, { outcome, cause, route, count: sum + count })
    }
    const countName = COUNTS.get(`${kind} ${outcome}`)
    if (!countName) continue
    const [rule = '', route = '', plan = ''] = labels
    const sums = rules.get(name) ?? { rule, route, plan, ...NOTHING }
    rules.set(name, { ...sums, [countName]: sums[countName] + count })
  }
  return {
    ...{ rules: [...rules.values()], requests: [...requests.values()], withoutTrip, test, lost },
    ...{ calls: [...calls.values()], callsWithoutTrip, lostCalls },
  }
}

const NOTHING = { allowed: 0, limited: 0, shadowAllowed: 0, shadowLimited: 0, agreed: 0, disagreed: 0 }

const COUNTS = new Map<string, keyof typeof NOTHING>([
  ['rule allowed', 'allowed'],
  ['rule limited', 'limited'],
  ['rule shadow_allowed', 'shadowAllowed'],
  ['rule shadow_limited', 'shadowLimited'],
  ['candidate agreed', 'agreed'],
  ['candidate disagreed', 'disagreed'],
])

/**
 * The statistics with the counts of one rule only.
 * @param names the rules of the config
 * @throws AdminError `not-found` for a rule that is neither in the config nor in the statistics
 */
export function filterByRule(stats: Stats, rule: string, names: readonly string[]): Stats {
  const rules = stats.rules.filter(counts => counts.rule === rule)
  if (rules.length === 0) checkRuleName(rule, names)
  return { ...stats, rules }
}

/** @throws AdminError `not-found` for a rule that is not in the config */
export function checkRuleName(rule: string, names: readonly string[]): void {
  if (names.includes(rule)) return
  throw new AdminError(
    'not-found',
    `The config has no rule '${rule}'.${didYouMean(rule, names)} Rules: ${names.join(', ')}.`,
  )
}

/** Sums the counts of each rule, or of each rule and route or plan. In the order of the config; rules that it no longer has come last. */
export function sumByRule(
  rules: readonly RuleCounts[],
  names: readonly string[],
  by?: 'route' | 'plan',
): RuleCounts[] {
  const rows = new Map<string, RuleCounts>()
  for (const counts of rules) {
    const { rule, route, plan } = counts
    const label = by ? counts[by] : ''
    const row = rows.get(`${rule} ${label}`) ?? { rule, route, plan, ...NOTHING }
    const sums = COUNT_NAMES.map(name => [name, row[name] + counts[name]])
    rows.set(`${rule} ${label}`, { ...row, ...Object.fromEntries(sums) })
  }
  const place = ({ rule }: RuleCounts) => (names.includes(rule) ? names.indexOf(rule) : names.length)
  const label = (row: RuleCounts) => `${row.rule} ${by ? row[by] : ''}`
  return [...rows.values()].sort((a, b) => place(a) - place(b) || (label(a) < label(b) ? -1 : 1))
}

const COUNT_NAMES = Object.keys(NOTHING) as (keyof typeof NOTHING)[]

/** Sums the requests with each outcome and cause, the most frequent first. */
export function sumByOutcome(requests: readonly RequestCount[]): Omit<RequestCount, 'route'>[] {
  const rows = new Map<string, Omit<RequestCount, 'route'>>()
  for (const { outcome, cause, count } of requests) {
    const sum = rows.get(`${outcome} ${cause}`)?.count ?? 0
    rows.set(`${outcome} ${cause}`, { outcome, cause, count: sum + count })
  }
  return [...rows.values()].sort((a, b) => b.count - a.count)
}
