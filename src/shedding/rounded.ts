/** As many decimals as are stored: a state that was just computed equals the one that is read back. */
export function rounded(value: number): number {
  // Adding 0 turns -0 into 0.
  return Math.round(value * 1000) / 1000 + 0
}
