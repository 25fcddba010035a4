/**
 * Sliding window over two counters (Cloudflare, "How we built rate limiting capable of scaling to millions of
 * domains", 2017). Lua twin: sliding-window.lua, section by section.
 *
 * What was spent in this window, plus what was spent in the one before, weighted by the share of it that the last
 * `period` still covers. An approximation: it takes the previous window as evenly filled. In any stretch of d <= period
 * at most limit × (1 + d / period). The weight falls in `step`s of microseconds, rounded up, so that all products
 * stay exact.
 *
 * State: idleAt is the end of the window after the current one; n is the previous window's count times 2^23 plus the
 * current one's.
 */
import { ceilDiv, modelOf } from './algorithm.ts'

/** Counts of both windows share one number of the record. */
export const MAX_WINDOW_COUNT = 2 ** 23 - 1

interface Kept {
  limit: number
  period: number
  step: number
  now: number
  windowEnd: number
  previous: number
  current: number
  /** How many steps of this window the previous one still weighs. */
  left: number
}

export const slidingWindow = modelOf<Kept>({
  read({ quota: { burst: limit, period, step = 1 }, state: [idleAt, n], now }) {
    let [windowEnd, previous, current] = [now - (now % period) + period, 0, 0]
    if (idleAt === windowEnd + period || idleAt === windowEnd + 2 * period) {
      // The next window was left by a clock that has since been set back (a failover).
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
    // A count above the limit is from before the limit was lowered, and weighs no more than the limit. The count itself
    // stays: a config with the higher limit may be live beside this one.
    const weight = Math.min(previous, limit)
    if (cost > limit) return -1
    if (weight * left + (current + cost) * steps <= limit * steps) return 0
    // The instant at which enough of a window has slid out: the previous one, or where that is not enough the current
    // one, once it has become the previous.
    const room = limit - current - cost
    if (room >= 0) return windowEnd - Math.floor((room * steps) / weight) * step - now
    const nextWeight = Math.min(current, limit)
    return windowEnd + period - Math.floor(((limit - cost) * steps) / nextWeight) * step - now
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

  standing({ limit, period, step, now, windowEnd, previous, current, left }) {
    const steps = period / step
    const room = limit * steps - Math.min(previous, limit) * left
    return {
      remaining: Math.max(0, Math.floor(room / steps) - current),
      resetAfter: current > 0 ? windowEnd + period - now : previous > 0 ? windowEnd - now : 0,
    }
  },

  write: ({ period, windowEnd, previous, current }) => [windowEnd + period, previous * 8388608 + current],
})
