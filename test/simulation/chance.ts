/** Seeded chance with the distributions that a simulation needs. */
import { randomFrom } from '../support/random.ts'

export interface Chance {
  /** From 0 up to, not including, 1. */
  uniform(): number
  /** The time until the next of so many a second (ms). */
  gapMs(perSecond: number): number
  /** With this mean; sigma is that of its logarithm. */
  lognormal(mean: number, sigma: number): number
  /** From 0 up to, not including, n. */
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
