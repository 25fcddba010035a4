/** More than any latency in ms (almost three hours) or number in flight. Eight numbers with three decimals make 100 characters at most. */
const MOST = 9_999_999

/** As many decimals as are stored, from 0 to ten million: a state that was just computed equals the one that is read back. */
export function rounded(value: number): number {
  // Adding 0 turns -0 into 0.
  return Math.round(Math.min(Math.max(0, value), MOST) * 1000) / 1000 + 0
}
