/**
 * Fixed window, aligned to the epoch or to a calendar. Lua twin: fixed-window.lua, kept line for line.
 *
 * At most `limit` in each window of `period`; across a boundary up to twice the limit can pass within one period,
 * which is the nature of the algorithm. The ends of calendar windows are given (calendar.ts): four in a row around
 * the caller's idea of now, of which the clock of the store picks.
 *
 * State: idleAt is the end of the window, n what has been spent in it.
 */
import type { Algorithm } from './algorithm.ts'

export const fixedWindow: Algorithm = ({ limit, period, ends, cost: asked }, [idleAt, n], now, spentAt) => {
  let cost = asked
  let windowStart = Math.floor(now / period) * period
  let [windowEnd, nextEnd] = [windowStart + period, windowStart + 2 * period]
  // A caller's clock that is days behind has not sent the ends of today: windows of `period` stand in.
  if (ends && now < ends[3]!) {
    const [first, second, third, fourth] = ends as [number, number, number, number]
    // Of a window that has ended for the caller only the end is known: nothing earlier than now is surely in it.
    ;[windowStart, windowEnd, nextEnd] = [now, first, second]
    if (now >= windowEnd) [windowStart, windowEnd, nextEnd] = [windowEnd, nextEnd, third]
    if (now >= windowEnd) [windowStart, windowEnd, nextEnd] = [windowEnd, nextEnd, fourth]
    if (now >= windowEnd) [windowStart, windowEnd, nextEnd] = [windowEnd, nextEnd, nextEnd + period]
  }
  let count = 0
  if (idleAt === windowEnd) {
    count = n
  } else if (idleAt === nextEnd) {
    // A window that starts in the future is kept when it is the next one: the clock was set back (a failover) over a
    // boundary, and opening the old window again would admit its limit twice.
    ;[windowStart, windowEnd, count] = [windowEnd, nextEnd, n]
  }
  const remaining = count < limit ? limit - count : 0
  const resetAfter = count > 0 ? windowEnd - now : 0

  // A peek is never refused, even where the limit has since been lowered.
  if (cost === 0) return { retryAfter: 0, remaining, resetAfter }
  if (cost > limit) return { retryAfter: -1, remaining, resetAfter }
  if (cost > 0 && count + cost > limit) return { retryAfter: windowEnd - now, remaining, resetAfter }
  // What was spent in another window is not given back to this one.
  if (cost < 0 && spentAt !== undefined && (spentAt < windowStart || spentAt >= windowEnd)) cost = 0

  count = Math.max(0, count + cost)
  const after = {
    remaining: count < limit ? limit - count : 0,
    resetAfter: count > 0 ? windowEnd - now : 0,
    state: [windowEnd, count],
  } as const
  return { retryAfter: 0, remaining, resetAfter, after }
}
