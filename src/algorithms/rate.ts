/**
 * What gcra, token-bucket and leaky-bucket have in common: units that come back evenly, `limit` in each `period`, and a
 * state that is the instant at which all of them are back.
 */
import type { Quota } from './algorithm.ts'
import type { Flaw } from './descriptor.ts'
import { MAX_TICKS } from './exact.ts'

/** The longest time (µs) that a whole budget may take to come back: the HORIZON of src/script/prelude.lua is twice that. */
export const MAX_REFILL = 2 * 366 * 86400e6

/** Only the ratio counts, and in lowest terms it needs the fewest ticks. */
export function rateOf({ limit, burst = limit }: RateInput, period: number): Quota {
  const divisor = greatestCommonDivisor(limit, period)
  return { rate: limit / divisor, period: period / divisor, burst }
}

interface RateInput {
  readonly limit: number
  readonly burst?: number | undefined
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b)
}

/** A share of the burst, and the units come back more slowly. */
export function shareOfRate(quota: Quota, burst: number, share: number): Quota {
  return { ...quota, burst, period: Math.round(quota.period / share) }
}

/**
 * @param period µs
 * @param parameter that the burst was written as, and the units that stand there
 */
export function flawsOfRate(
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
  if (burst * rateOf(input, period).period <= MAX_TICKS) return []
  const tooFine = `${limit} per '${input.period}' with a ${parameter} of ${units} needs more than 2^51 steps to space exactly.`
  const fix = `Lower the ${parameter}, or choose a limit that divides the period in microseconds (${period}).`
  return [['limit', `${tooFine} ${fix}`]]
}
