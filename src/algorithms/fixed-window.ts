/**
 * Fixed window, aligned to the epoch. Lua twin: fixed-window.lua, kept line for line.
 *
 * At most `limit` in each window of `period`; across a boundary up to twice the limit can pass within one period,
 * which is the nature of the algorithm.
 *
 * State: idleAt is the end of the window, n what has been spent in it.
 */
import type { Algorithm } from './algorithm.ts'

export const fixedWindow: Algorithm = ({ limit, period, cost }, [idleAt, n], now) => {
  let windowEnd = (Math.floor(now / period) + 1) * period
  let count = 0
  // A window that starts in the future is kept when it is the next one: the clock was set back (a failover) over a
  // boundary, and opening the old window again would admit its limit twice.
  if (idleAt === windowEnd || idleAt === windowEnd + period) {
    windowEnd = idleAt
    count = n
  }
  const remaining = count < limit ? limit - count : 0
  const resetAfter = count > 0 ? windowEnd - now : 0

  if (cost > limit) return { retryAfter: -1, remaining, resetAfter }
  // A peek is never refused, even where the limit has since been lowered.
  if (cost > 0 && count + cost > limit) return { retryAfter: windowEnd - now, remaining, resetAfter }
  return { retryAfter: 0, remaining, resetAfter, next: [windowEnd, count + cost] }
}
