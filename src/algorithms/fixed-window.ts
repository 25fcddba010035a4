/**
 * Fixed window, aligned to the epoch or to a calendar. Lua twin: fixed-window.lua, section by section.
 *
 * At most `limit` in each window of `period`; across a boundary up to twice the limit can pass within one period, which is
 * the nature of the algorithm. The ends of calendar windows are given (calendar.ts): four in a row around the caller's
 * clock, from which the clock of the store picks.
 *
 * State: idleAt is the end of the window, n what has been spent in it.
 */
import { modelOf } from './algorithm.ts'

interface Kept {
  limit: number
  now: number
  windowStart: number
  windowEnd: number
  count: number
}

export const fixedWindow = modelOf<Kept>({
  read({ quota: { burst: limit, period }, ends, state: [idleAt, n], now }) {
    let windowStart = now - (now % period)
    let [windowEnd, count] = [windowStart + period, 0]
    let nextEnd = windowEnd + period
    // A gateway whose clock is days behind has not sent the ends of today: windows of `period` stand in.
    if (ends && now < ends[3]!) {
      const [first, second, third, fourth] = ends as [number, number, number, number]
      // Of a window that has ended by the gateway's clock only the end is known: nothing before now is surely in it.
      ;[windowStart, windowEnd, nextEnd] = [now, first, second]
      if (now >= windowEnd) [windowStart, windowEnd, nextEnd] = [windowEnd, nextEnd, third]
      if (now >= windowEnd) [windowStart, windowEnd, nextEnd] = [windowEnd, nextEnd, fourth]
      if (now >= windowEnd) [windowStart, windowEnd, nextEnd] = [windowEnd, nextEnd, nextEnd + period]
    }
    if (idleAt === windowEnd) {
      count = n
    } else if (idleAt === nextEnd) {
      // A window that starts in the future is kept when it is the next one: the clock was set back (a failover) over a
      // boundary, and opening the old window again would admit its limit twice.
      ;[windowStart, windowEnd, count] = [windowEnd, nextEnd, n]
    }
    return { limit, now, windowStart, windowEnd, count }
  },

  check({ limit, now, windowEnd, count }, cost) {
    if (cost > limit) return -1
    return count + cost > limit ? windowEnd - now : 0
  },

  spend(kept, cost) {
    kept.count += cost
    return undefined
  },

  refund(kept, { units, spentAt }) {
    const { windowStart, windowEnd, count } = kept
    // What was spent in another window is not given back to this one.
    if (spentAt >= windowStart && spentAt < windowEnd) kept.count = Math.max(0, count - units)
  },

  standing({ limit, now, windowEnd, count }) {
    return { remaining: count < limit ? limit - count : 0, resetAfter: count > 0 ? windowEnd - now : 0 }
  },

  write: ({ windowEnd, count }) => [windowEnd, count],
})
