/**
 * More than any latency in ms (almost three hours) or number in flight. Eight numbers with three decimals have at
 * most 100 characters.
 */
const MAX = 9_999_999

/**
 * Rounds to the three decimals that are stored, within 0 and ten million. So a state that was just computed equals
 * the same state after it was stored and read.
 */
export function roundForStore(value: number): number {
  // Adding 0 turns -0 into 0.
  return Math.round(Math.min(Math.max(0, value), MAX) * 1000) / 1000 + 0
}
