/**
 * Fixed window. Its start is aligned to the epoch or to a calendar, or is its first request. Lua twin: fixed-window.lua, section by
 * section.
 *
 * Admits at most `limit` in each window of `period`. Within one period that spans a boundary, up to twice the limit can pass: this is
 * a property of the algorithm. The ends of calendar windows come with the call to the store (calendar.ts): four consecutive ends
 * around the isolate's time, from which the time of the store selects the window.
 *
 * State: idleAt is the end of the window, n the units spent in it.
 */
import { modelOf } from './algorithm.ts'

export interface Kept {
  limit: number
  now: number
  windowStart: number
  windowEnd: number
  count: number
}

export const fixedWindow = modelOf<Kept>({
  read({ quota: { burst: limit, period, startsWithRequest }, ends, state: [idleAt, n], now }) {
    // Explained in the Lua twin.
    if (startsWithRequest) {
      const isOpen = n > 0 && idleAt > now && idleAt <= now + 2 * period
      const [windowEnd, count] = isOpen ? [idleAt, n] : [now - (now % 1000) + period, 0]
      return { limit, now, windowStart: windowEnd - period, windowEnd, count }
    }
    let windowStart = now - (now % period)
    let [windowEnd, count] = [windowStart + period, 0]
    let nextEnd = windowEnd + period
    // If the isolate's clock is days behind, all four ends are in the past. Then windows of `period` are used instead.
    if (ends && now < ends[3]!) {
      const [first, second, third, fourth] = ends as [number, number, number, number]
      // The window before the first end has no known start. `now` is used, so that no earlier request counts as part of it.
      ;[windowStart, windowEnd, nextEnd] = [now, first, second]
      if (now >= windowEnd) [windowStart, windowEnd, nextEnd] = [windowEnd, nextEnd, third]
      if (now >= windowEnd) [windowStart, windowEnd, nextEnd] = [windowEnd, nextEnd, fourth]
      if (now >= windowEnd) [windowStart, windowEnd, nextEnd] = [windowEnd, nextEnd, nextEnd + period]
    }
    if (idleAt === windowEnd) {
      count = n
    } else if (idleAt === nextEnd) {
      // The record is of the next window: the clock was set back over a boundary, as in a failover. That window stays
      // current, because opening the old one again would admit its limit twice.
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
    // Units that were spent in another window are not given back to this one.
    if (spentAt >= windowStart && spentAt < windowEnd) kept.count = Math.max(0, count - units)
  },

  standing({ limit, now, windowEnd, count }) {
    return { remaining: count < limit ? limit - count : 0, resetAfter: count > 0 ? windowEnd - now : 0 }
  },

  write: ({ windowEnd, count }) => [windowEnd, count],
})
