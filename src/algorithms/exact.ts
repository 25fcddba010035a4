/**
 * The largest product of a number of units and the ticks of one unit. Up to it, the sums that the algorithms form stay exact in
 * doubles, in Lua as in TypeScript.
 */
export const MAX_TICKS = 2 ** 51
