/** The bound of exact arithmetic, in Lua as in TypeScript. */

/** The largest count × scale that stays exact in double arithmetic with room for the sums made with it. */
export const MAX_TICKS = 2 ** 51
