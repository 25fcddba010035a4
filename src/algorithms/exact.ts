/**
 * The largest product of a count and a scale. Below it, the sums that the algorithms form stay exact in doubles, in Lua as in
 * TypeScript.
 */
export const MAX_TICKS = 2 ** 51
