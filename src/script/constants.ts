/** Numbers that the Lua text and the Lua files have in common. */
import { FEW_HOLDERS, NO_HOLDER } from '../algorithms/concurrency.ts'
import { literal } from './lua-text.ts'

/**
 * No record of Sluice lies further ahead than this (µs). The longest time to refill is two years (algorithms/rate.ts), and twice
 * that after a clock has been set back by as much; one day allows for rounding.
 */
const HORIZON = (4 * 366 + 1) * 86400e6

/**
 * A state stays this much longer than it means anything, so that a failover to a slower clock still finds it. This is garbage
 * collection, never meaning, so whole seconds suffice. Three years of them fit into a C integer of 32 bits, so '%d' can write
 * them, which is faster than '%.0f'.
 */
const KEEP_SECONDS = 10

/** The marks of rules (marks.ts) as the script reads them: as bytes. */
export const ABSENT = 48
export const ENFORCE = 101
export const SHADOW = 115
export const STAYS_SHADOW = 83

/** Of a holder of units in flight: the bytes of its record, from how many on there is a summary, and they are written in place. */
const HOLDER_BYTES = 24
const FEW_BYTES = FEW_HOLDERS * HOLDER_BYTES
const MANY_BYTES = 64 * HOLDER_BYTES

/** Constants of the Lua files. */
export const CONSTANTS: ReadonlyMap<string, string> = /* @__PURE__ */ (() =>
  new Map(
    Object.entries({
      ABSENT,
      ENFORCE,
      SHADOW,
      STAYS_SHADOW,
      HORIZON,
      KEEP_SECONDS,
      HOLDER_BYTES,
      FEW_BYTES,
      MANY_BYTES,
      NO_HOLDER,
    }).map(([name, value]) => [name, literal(value)]),
  ))()
