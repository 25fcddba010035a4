/**
 * Shared by gcra, token-bucket and leaky-bucket: units come back evenly, `limit` in each `period`, and the state is the
 * instant at which all of them are back.
 */
import type { Quota, Standing } from './algorithm.ts'
import type { Flaw } from './descriptor.ts'
import { MAX_TICKS } from './exact.ts'

/** The longest time (µs) that a whole budget may take to come back. HORIZON (src/script/constants.ts) is derived from it. */
export const MAX_REFILL = 2 * 366 * 86400e6

/** The quota in lowest terms: only the ratio of limit and period matters, and this form needs the fewest ticks. @param period µs */
export function toRateQuota({ limit, burst = limit }: RateInput, period: number): Quota {
  const divisor = greatestCommonDivisor(limit, period)
  return { rate: limit / divisor, period: period / divisor, burst }
}

/** How long a cost that is above what is left has to wait (µs): until all units but `burst - cost` are back. */
export function waitForRate({ rate, period, burst }: Quota, { resetAfter }: Standing, cost: number): number {
  return resetAfter - Math.floor(((burst - cost) * period) / rate)
}

interface RateInput {
  readonly limit: number
  readonly burst?: number | undefined
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b)
}

/** The quota for a share of the limit: a smaller burst, and units that come back more slowly. */
export function shareOfRate(quota: Quota, burst: number, share: number): Quota {
  return { ...quota, burst, period: Math.round(quota.period / share) }
}

/**
 * Finds rates that take too long to refill, or that cannot be computed exactly.
 * @param period µs
 * @param parameter the parameter that sets the burst
 * @param units the value of that parameter
 */
export function findRateFlaws(
  input: { readonly limit: number; readonly period: string },
  period: number,
  burst: number,
  [parameter, units]: readonly [name: string, units: number],
): Flaw[] {
  const { limit } = input
  const refill = (burst * period) / limit
  if (refill > MAX_REFILL) {
    const most = `the maximum is ${MAX_REFILL / 86400e6} days`
    return [
      [parameter, `${units} takes ${Math.ceil(refill / 86400e6)} days to come back, and ${most}. Lower it.`],
    ]
  }
  if (burst * toRateQuota(input, period).period <= MAX_TICKS) return []
  const tooFine = `${limit} per '${input.period}' with a ${parameter} of ${units} cannot be spaced exactly: it needs more than 2^51 steps.`
  const fix = `Lower the ${parameter}, or choose a limit that is a divisor of ${period}, the period in microseconds.`
  return [['limit', `${tooFine} ${fix}`]]
}
