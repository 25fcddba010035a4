/** Numbers that are used in the generated Lua text and in the Lua files. */

import { FEW_HOLDERS, MANY_HOLDERS, MAX_UNITS, NO_HOLDER } from '../algorithms/concurrency.ts'
import { LONGEST_DEBT, MAX_DEBT } from '../algorithms/settled.ts'
import { LOG_CHUNK, LOG_ENTRY, LOG_FIELDS, LOG_PLAIN } from '../algorithms/sliding-log.ts'
import { literal } from './lua-text.ts'

/**
 * How far in the future a valid record can become idle (µs). The longest time to refill is two years (algorithms/rate.ts), and the longest debt
 * three (algorithms/settled.ts). If the clock was then set back by two years or by one, that instant is four years away. One more day allows
 * for rounding.
 */
const HORIZON = (4 * 366 + 1) * 86400e6

/**
 * How long a state is kept after it has become idle, so that a failover to a server with a slower clock still finds it. The TTL is
 * garbage collection only and never decides a limit, so whole seconds are enough. Even the horizon in seconds fits into a C integer of 32
 * bits, so '%d' can format them, which is faster than '%.0f'.
 */
const KEEP_SECONDS = 10

/**
 * Up to a quarter of its life, and at most a minute, is added to the TTL of a key: the callers of a window all become idle at its end, and
 * Redis would have to remove their keys within a second. The macro `spread` takes the amount from the microseconds of `now`, which
 * is as good as random.
 */
const SPREAD_SHARE = 4
const MAX_SPREAD = 60

/** The marks of rules (marks.ts) as bytes, which is how the script reads them. */
export const ABSENT = 48
export const ENFORCE = 101
export const SHADOW = 115
export const STAYS_SHADOW = 83

/** The tag of a pause (pause.lua). Tags of rules have only letters and digits. */
const PAUSE_TAG = "'~p~'"

/**
 * Sizes for units in flight, in bytes: of a holder's record; of all records, above which a summary precedes them; and of the summary and
 * the records, above which concurrency.lua treats them as many.
 */
const HOLDER_BYTES = 24
const FEW_BYTES = FEW_HOLDERS * HOLDER_BYTES
const MANY_BYTES = (MANY_HOLDERS + 1) * HOLDER_BYTES

/** Constants by the name that stands for them in Lua text. */
export const CONSTANTS: ReadonlyMap<string, string> = /* @__PURE__ */ (() =>
  new Map([
    ['PAUSE', PAUSE_TAG],
    ...Object.entries({
      ABSENT,
      ENFORCE,
      SHADOW,
      STAYS_SHADOW,
      HORIZON,
      KEEP_SECONDS,
      SPREAD_SHARE,
      MAX_SPREAD,
      HOLDER_BYTES,
      FEW_BYTES,
      MANY_BYTES,
      MAX_UNITS,
      NO_HOLDER,
      LOG_ENTRY,
      MAX_DEBT,
      LONGEST_DEBT,
      LOG_PLAIN,
      LOG_CHUNK,
      LOG_FIELDS,
    }).map(([name, value]) => [name, literal(value)] as const),
  ]))()
