/** Reads counters back: what the records of the statistics have, or what an isolate has not sent yet. Pure. */
import { BUCKETS_MS, timeField, USAGE_UNITS } from './measurements.ts'

/** Verdicts of a rule, in a limit by name `<limit>/<rule>`. Labels are those of src/metrics/counters.ts: `-` means none, `~` that the table of counters was full. */
export interface RuleCounts {
  rule: string
  route: string
  plan: string
  /** Of the caller: `live` or `test`. Verdicts that an earlier version has counted are `live`. */
  mode: string
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

/** Sums of counters. */
export interface Sums {
  rules: readonly RuleCounts[]
  requests: readonly RequestCount[]
  /** Requests that the isolate decided without a trip to the store, by the source of the decision. */
  withoutTrip: Readonly<Partial<Record<string, number>>>
  /** How many of the requests came from test callers, by their outcome. */
  test: Readonly<Partial<Record<string, number>>>
  /** Admitted requests of critical classes, by class. Absent: there were none. */
  critical?: Readonly<Record<string, CriticalCounts>>
  /** Requests whose counters may not have arrived. */
  lost: number
  /** Not part of `requests`. */
  calls: readonly CallCount[]
  callsWithoutTrip: Readonly<Partial<Record<string, number>>>
  lostCalls: number
  /** What has become of reservations, by rule. Absent: none were made. */
  reservations?: Readonly<Record<string, ReservationCounts>>
}

/** Admitted requests of a critical class: while other classes had room, and while a shedder would have refused them. */
export interface CriticalCounts {
  within: number
  over: number
}

/** Reservations of a rule, and their units. */
export interface ReservationCounts {
  made: number
  settled: number
  /** Settled after their end, or twice: the store has not applied these settlements. */
  late: number
  /** Settlements that isolates have given up. */
  unsettled: number
  /** Units that were reserved, and what the requests have cost. */
  reserved: number
  cost: number
  /** Units that settlements have spent above the limit. */
  debt: number
}

export type Count = readonly [field: string, count: number]

/** A hash as the store replies with it: field, value, field, value. */
export type Hash = readonly string[]

export const pairs = (hash: Hash): [field: string, value: string][] =>
  Array.from({ length: hash.length / 2 }, (_, i) => [hash[2 * i]!, hash[2 * i + 1]!])

/** Fields with other values than sums: hours, minutes, highest values. */
const IS_PART = /^(?:h|m|usage) /

/** The sums in a record of a day, or of all time (add-counts.ts). */
export const countsIn = (record: Hash): Count[] =>
  pairs(record).flatMap(([field, value]): Count[] => (IS_PART.test(field) ? [] : [[field, Number(value)]]))

/** What a record of a day has of some of its hours (`h`) or minutes (`m`). @param from and `to`: the first and the last, from 0 on */
export const countsOfPart = (record: Hash, part: 'h' | 'm', from: number, to: number): Count[] =>
  pairs(record).flatMap(([field, value]): Count[] => {
    if (!field.startsWith(`${part} `)) return []
    const counts = entriesOf(value).map(([at, count]) => (at >= from && at <= to ? count : 0))
    return [[field.slice(2), counts.reduce((sum, count) => sum + count, 0)]]
  })

/** The highest values in the record of all time. @param from the first minute since the epoch */
export const highestIn = (record: Hash, from: number): Count[] =>
  pairs(record).flatMap(([field, value]): Count[] => {
    if (!field.startsWith('usage ')) return []
    const recent = entriesOf(value).filter(([at]) => at >= from)
    return recent.length > 0 ? [[field, Math.max(...recent.map(([, count]) => count))]] : []
  })

/** Of a text as `540:3,541:28`. */
const entriesOf = (text: string) =>
  text.split(',').map(entry => entry.split(':').map(Number) as [at: number, count: number])

export const sumFields = (fields: readonly Count[]): Sums => ({
  ...sumCounts(fields),
  ...sumReservations(fields),
})

/** As `sumFields`, without reservations: all that rules without units have. */
export function sumCounts(fields: readonly Count[]): Sums {
  const rules = new Map<string, RuleCounts>()
  const requests = new Map<string, RequestCount>()
  const calls = new Map<string, CallCount>()
  const critical = new Map<string, CriticalCounts>()
  /** By the kind of the field, then by its outcome. */
  const sums = new Map<string, Record<string, number>>()
  for (const [field, count] of fields) {
    const [kind = '', outcome = '', ...labels] = field.split(' ')
    const [first = '', second = '', third = '', mode = first === '~' ? '~' : 'live'] = labels
    const sum = rowOf(sums, kind, {})
    sum[outcome] = (sum[outcome] ?? 0) + count
    if (kind === 'call')
      rowOf(calls, field, { limit: second, outcome, cause: first, count: 0 }).count += count
    if (kind === 'request')
      rowOf(requests, field, { outcome, cause: first, route: second, count: 0 }).count += count
    if (kind === 'critical' && (outcome === 'within' || outcome === 'over'))
      rowOf(critical, first, { within: 0, over: 0 })[outcome] += count
    // `shadow_allowed` is counted as `shadowAllowed`.
    const verdict = outcome.replace(/_./, ([, letter]) => letter!.toUpperCase())
    if ((kind === 'rule' || kind === 'candidate') && isVerdict(verdict))
      rowOf(rules, labels.join(' '), { rule: first, route: second, plan: third, mode, ...NOTHING })[
        verdict
      ] += count
  }
  const sumsOf = (kind: string) => sums.get(kind) ?? {}
  return {
    rules: [...rules.values()],
    requests: [...requests.values()],
    withoutTrip: sumsOf('without-trip'),
    test: sumsOf('test'),
    ...(critical.size > 0 && { critical: Object.fromEntries(critical) }),
    lost: sumsOf('lost')[''] ?? 0,
    calls: [...calls.values()],
    callsWithoutTrip: sumsOf('call-without-trip'),
    lostCalls: sumsOf('lost-calls')[''] ?? 0,
  }
}

/** Finds the row of a name. @param start becomes the row if there is none yet */
function rowOf<R>(rows: Map<string, R>, name: string, start: R): R {
  if (!rows.has(name)) rows.set(name, start)
  return rows.get(name)!
}

const isVerdict = (name: string): name is keyof typeof NOTHING => Object.hasOwn(NOTHING, name)

function sumReservations(fields: readonly Count[]): Pick<Sums, 'reservations'> {
  const reservations: Record<string, ReservationCounts> = {}
  for (const [field, count] of fields) {
    const [kind, ...labels] = field.split(' ')
    const [what = '', rule = '~'] = kind === 'unsettled' ? [kind, ...labels] : labels
    if (!isReservationCount(kind, what)) continue
    const sums = reservations[rule] ?? NO_RESERVATIONS
    reservations[rule] = { ...sums, [what]: sums[what] + count }
  }
  return Object.keys(reservations).length > 0 ? { reservations } : {}
}

const NO_RESERVATIONS = { made: 0, settled: 0, late: 0, unsettled: 0, reserved: 0, cost: 0, debt: 0 }

const RESERVATION_KINDS = new Set(['reservation', 'units', 'unsettled'])

const isReservationCount = (kind: string | undefined, what: string): what is keyof ReservationCounts =>
  RESERVATION_KINDS.has(kind ?? '') && Object.hasOwn(NO_RESERVATIONS, what)

export const NOTHING = { allowed: 0, limited: 0, shadowAllowed: 0, shadowLimited: 0, agreed: 0, disagreed: 0 }

/** The sums of the measurements (measurements.ts), by the words of their fields. */
export interface MeasuredSums {
  /** By what was timed: the count of each bucket, and the sum of the durations (ms). */
  times: ReadonlyMap<'decision' | 'origin', { buckets: readonly number[]; sumMs: number }>
  /** The highest share that was used of the limit of a rule, 0 to 1. */
  usage: ReadonlyMap<string, number>
  /** The highest share of its limit that one request has reserved, 0 to 1. */
  reserved: ReadonlyMap<string, number>
  /** The highest debt, as a share of the limit. */
  debt: ReadonlyMap<string, number>
  /** How often each rule has refused the caller that it refuses most, in the last minutes. Absent: callers are not counted. */
  mostRefused?: ReadonlyMap<string, number>
  trips: number
  commands: number
  breakerOpened: number
}

/**
 * @param totals of the record of all time
 * @param recent the highest values of the last minutes
 */
export function sumMeasurements(totals: readonly Count[], recent: readonly Count[]): MeasuredSums {
  // A full record has further counters under longer names.
  const count = new Map(totals.map(([field, by]) => [field.replace(/ ~ ~ ~$/, ''), by]))
  const of = (field: string) => count.get(field) ?? 0
  const timeOf = (what: string) => ({
    buckets: [...BUCKETS_MS, undefined].map((_, i) => of(timeField(what, i))),
    sumMs: of(`time-${what} sum`),
  })
  const highest = { usage: new Map<string, number>(), reserved: new Map(), debt: new Map() }
  for (const [field, share] of recent) {
    const [, rule, what] = /^usage (\S+)(?: (reserved|debt))?$/.exec(field) ?? []
    if (rule === undefined) continue
    const shares: Map<string, number> = highest[(what as 'reserved' | 'debt' | undefined) ?? 'usage']
    shares.set(rule, Math.max(shares.get(rule) ?? 0, share / USAGE_UNITS))
  }
  return {
    times: new Map((['decision', 'origin'] as const).map(what => [what, timeOf(what)])),
    ...{ ...highest, trips: of('store trips'), commands: of('store commands') },
    breakerOpened: of('breaker opened'),
  }
}
