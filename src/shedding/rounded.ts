/** More than any latency in ms or number in flight; three decimals of it fit into a number. */
const MOST = 1e9

/** As many decimals as are stored, from 0 to a billion: a state that was just computed equals the one that is read back. */
export function rounded(value: number): number {
  // Adding 0 turns -0 into 0.
  return Math.round(Math.min(Math.max(0, value), MOST) * 1000) / 1000 + 0
}
