/**
 * The maximum of units times ticks per unit (gcra.ts). Below it, the sums that the algorithms form are exact in
 * doubles, in Lua and in TypeScript.
 */
export const MAX_TICKS = 2 ** 51
