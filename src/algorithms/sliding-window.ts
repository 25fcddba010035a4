/**
 * Sliding window over two counters (Cloudflare, "How we built rate limiting capable of scaling to millions of
 * domains", 2017). Lua twin: sliding-window.lua, section by section.
 *
 * Counts all units of the current window, and the units of the previous window times a weight: the share of the previous window that
 * the last `period` still covers. This approximates a sliding log: it assumes that the previous window was evenly filled. In any
 * interval of length d <= period, at most limit × (1 + d / period) units are admitted. The weight falls in steps of `step`
 * microseconds, rounded up, so that all products stay exact.
 *
 * State: idleAt is the end of the window after the current one. n is the previous window's count times 2^23, plus the
 * current one's.
 */
import { ceilDiv, modelOf } from './algorithm.ts'

export interface Kept {
  limit: number
  period: number
  step: number
  now: number
  windowEnd: number
  previous: number
  current: number
  /** Steps until the current window ends. The previous window counts with the weight left × step / period. */
  left: number
}

export const slidingWindow = modelOf<Kept>({
  read({ quota: { burst: limit, period, step = 1 }, state: [idleAt, n], now }) {
    let [windowEnd, previous, current] = [now - (now % period) + period, 0, 0]
    if (idleAt === windowEnd + period || idleAt === windowEnd + 2 * period) {
      // The record is of this window or the next one. A record of the next one exists if the clock was set back, as in a failover.
      ;[windowEnd, previous] = [idleAt - period, Math.floor(n / 8388608)]
      current = n - previous * 8388608
    } else if (idleAt === windowEnd) {
      previous = n % 8388608
    }
    const left = Math.min(ceilDiv(windowEnd - now, step), period / step)
    return { limit, period, step, now, windowEnd, previous, current, left }
  },

  check({ limit, period, step, now, windowEnd, previous, current, left }, cost) {
    const steps = period / step
    // A count above the limit was made before the limit was lowered, and counts as the limit. The stored count stays, because
    // a config with the higher limit may still be live.
    const capped = Math.min(previous, limit)
    if (cost > limit) return -1
    if (capped * left + (current + cost) * steps <= limit * steps) return 0
    // Time until enough of the previous window has slid out. If that does not suffice: until enough of the current window has slid out,
    // after it has become the previous one.
    const room = limit - current - cost
    if (room >= 0) return windowEnd - Math.floor((room * steps) / capped) * step - now
    const nextCapped = Math.min(current, limit)
    return windowEnd + period - Math.floor(((limit - cost) * steps) / nextCapped) * step - now
  },

  spend(kept, cost) {
    kept.current += cost
    return undefined
  },

  refund(kept, { units, spentAt }) {
    const { period, windowEnd } = kept
    if (spentAt >= windowEnd - period && spentAt < windowEnd) {
      kept.current = Math.max(0, kept.current - units)
    } else if (spentAt >= windowEnd - 2 * period && spentAt < windowEnd - period) {
      kept.previous = Math.max(0, kept.previous - units)
    }
  },

  standing(kept) {
    const { period, now, windowEnd, previous, current } = kept
    return {
      remaining: Math.max(0, unitsLeft(kept)),
      resetAfter: current > 0 ? windowEnd + period - now : previous > 0 ? windowEnd - now : 0,
    }
  },

  write: ({ period, windowEnd, previous, current }) => [windowEnd + period, previous * 8388608 + current],
})

/** The units that are left. Below 0: more are spent than the limit, for example because it was lowered. */
export function unitsLeft({ limit, period, step, previous, current, left }: Kept): number {
  const steps = period / step
  const room = limit * steps - Math.min(previous, limit) * left
  return Math.floor(room / steps) - current
}
