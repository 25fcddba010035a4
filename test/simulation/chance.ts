/** A seeded random generator with the distributions that a simulation needs. */
import { randomFrom } from '../support/random.ts'

export interface Chance {
  /** A number from 0 to below 1. */
  uniform(): number
  /** The time until the next event of a Poisson process with this rate (ms). */
  gapMs(perSecond: number): number
  /** A lognormal number. @param sigma the standard deviation of its logarithm */
  lognormal(mean: number, sigma: number): number
  /** A whole number from 0 to below n. */
  below(n: number): number
}

const STEPS = 2 ** 30

export function chanceFrom(seed: number): Chance {
  const random = randomFrom(seed)
  const uniform = () => random.int(0, STEPS - 1) / STEPS
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform())
  return {
    uniform,
    gapMs: perSecond => (-Math.log(1 - uniform()) / perSecond) * 1000,
    lognormal: (mean, sigma) => mean * Math.exp(sigma * normal() - sigma ** 2 / 2),
    below: n => random.int(0, n - 1),
  }
}
