/** The guarantees of the algorithms about admitted requests, for any order and any times of arrival. */
import type { Rule } from '../../src/config/compile.ts'
import type { Admission } from './reference.ts'
import { windowOf, windowsFromRequests } from './windows.ts'

export interface Admitted extends Admission {
  /** µs until the request departed (`leaky-bucket`). */
  delay: number
}

/** The most units that may be admitted between two instants, both included. */
export function mostBetween(rule: Rule, from: number, to: number): number {
  const { limit, period, quota } = rule
  switch (rule.algorithm) {
    case 'fixed-window':
      // The end of one window, and then one window after the other, each of which starts at the earliest when the last one has ended.
      if (quota.startsWithRequest) return limit * (to > from ? Math.floor((to - from - 1) / period) + 2 : 1)
      return limit * (windowOf(rule, to) - windowOf(rule, from) + 1)
    case 'sliding-log':
      return limit * (Math.floor((to - from) / period) + 1)
    case 'sliding-window':
      return to - from <= period ? limit + share(limit, to - from, period) : Number.POSITIVE_INFINITY
    default:
      return quota.burst + share(limit, to - from, period)
  }
}

/** floor(a × b / c) */
const share = (a: number, b: number, c: number) => Number((BigInt(a) * BigInt(b)) / BigInt(c))

/**
 * Checks the guarantee of the rule's algorithm.
 * @param admitted in the order of admission
 * @returns a description of the violation, or undefined if the guarantee holds
 */
export function violationOf(rule: Rule, admitted: readonly Admitted[]): string | undefined {
  return (
    intervalViolation(rule, admitted) ??
    (rule.algorithm === 'fixed-window' || rule.algorithm === 'sliding-window'
      ? windowViolation(rule, admitted)
      : undefined) ??
    (rule.algorithm === 'leaky-bucket' ? departureViolation(rule, admitted) : undefined)
  )
}

/** Checks every interval between two admissions. */
function intervalViolation(rule: Rule, admitted: readonly Admitted[]): string | undefined {
  for (const [i, { at: from }] of admitted.entries()) {
    let units = 0
    for (const { at: to, cost } of admitted.slice(i)) {
      units += cost
      const most = mostBetween(rule, from, to)
      if (units > most) return `${units} units from ${from} to ${to}, ${to - from} µs: at most ${most}`
    }
  }
  return undefined
}

function windowViolation(rule: Rule, admitted: readonly Admitted[]): string | undefined {
  const windows = rule.quota.startsWithRequest
    ? windowsFromRequests(rule.period, admitted)
    : Map.groupBy(admitted, ({ at }) => windowOf(rule, at)).values()
  for (const spent of windows) {
    const units = unitsOf(spent)
    if (units > rule.limit) return `${units} units in the window of ${spent[0]!.at}: at most ${rule.limit}`
  }
  return undefined
}

/** Checks that departures are evenly spaced, apart from delays being rounded up to a microsecond, and that the queue is not too long. */
function departureViolation(
  { limit, period, quota }: Rule,
  admitted: readonly Admitted[],
): string | undefined {
  const departures = admitted.map(({ at, delay, cost }) => ({ cost, leaves: at + delay }))
  for (const [i, first] of departures.entries()) {
    // Checks all pairs and not only neighbours, because rounding must not accumulate.
    let units = first.cost
    for (const next of departures.slice(i + 1)) {
      const between = next.leaves - first.leaves
      if (BigInt(between + 1) * BigInt(limit) <= BigInt(units) * BigInt(period)) {
        return `${units} units, then the next ${between} µs later, at ${next.leaves}`
      }
      units += next.cost
    }
  }
  const waiting = mostWaiting(admitted)
  return waiting > quota.burst - 1 ? `${waiting} waiting at once: at most ${quota.burst - 1}` : undefined
}

/** The most units that waited at the same time. */
export function mostWaiting(admitted: readonly Admitted[]): number {
  const waiting = admitted.map(({ at: now }, i) =>
    unitsOf(admitted.slice(0, i + 1).filter(({ at, delay }) => at + delay > now)),
  )
  return Math.max(0, ...waiting)
}

export function unitsOf(list: readonly Admission[]): number {
  return list.reduce((sum, { cost }) => sum + cost, 0)
}

/** The most units that were admitted in any interval shorter than one period. */
export function mostInOnePeriod({ period }: Rule, admitted: readonly Admitted[]): number {
  return Math.max(
    0,
    ...admitted.map(({ at: from }, i) => unitsOf(admitted.slice(i).filter(({ at }) => at - from < period))),
  )
}
