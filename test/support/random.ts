/**
 * Seeds of random tests. A test that fails prints its seed. SEED=… repeats the test, and with FC_PATH=… a property
 * (property.ts) repeats only the case to which it was shrunk.
 */

export const SEED = Number(process.env.SEED ?? 20261120)

export const FC_PATH = process.env.FC_PATH

export interface Random {
  /** A whole number from low to high, both included. */
  int(low: number, high: number): number
  pick<T>(items: readonly T[]): T
  /** True in this share of cases. */
  chance(share: number): boolean
}

/**
 * Mulberry32, a small generator, for runs that cannot be shrunk because they are too long or not deterministic. Properties use
 * fast-check.
 */
export function randomFrom(seed: number): Random {
  let state = seed >>> 0
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
  const int = (low: number, high: number) => low + Math.floor(next() * (high - low + 1))
  return { int, pick: items => items[int(0, items.length - 1)]!, chance: share => next() < share }
}
