/**
 * Sliding window over two counters (Cloudflare, "How we built rate limiting capable of scaling to millions of
 * domains", 2017). Lua twin: sliding-window.lua, kept line for line.
 *
 * What was spent in this window, plus what was spent in the one before, weighted by the share of it that the last
 * `period` still covers. An approximation: it takes the previous window as evenly filled. In any stretch of d <= period
 * at most limit × (1 + d / period). The weight falls in `step`s of microseconds, rounded up, so that all products
 * stay exact.
 *
 * State: idleAt is the end of the window after the current one; n is the previous window's count times 2^23 plus the
 * current one's.
 */
import { type Algorithm, ceilDiv } from './algorithm.ts'

/** Counts of both windows share one number of the record. */
export const MAX_WINDOW_COUNT = 2 ** 23 - 1

export const slidingWindow: Algorithm = ({ limit, period, step = 1, cost }, [idleAt, n], now, spentAt) => {
  let windowEnd = (Math.floor(now / period) + 1) * period
  const theirEnd = idleAt - period
  let [previous, current] = [0, 0]
  if (theirEnd === windowEnd || theirEnd === windowEnd + period) {
    // The next window is one that a clock set back (a failover) has left.
    ;[windowEnd, previous] = [theirEnd, Math.floor(n / 8388608)]
    current = n - previous * 8388608
  } else if (theirEnd === windowEnd - period) {
    previous = n % 8388608
  }
  // More than the limit is from before the limit was lowered, and weighs no more. It stays: a config with the higher
  // limit may be live beside this one.
  const weight = Math.min(previous, limit)

  // Weights are counted in steps: all of a window is `steps`, all of the limit `budget`.
  const steps = period / step
  const left = Math.min(ceilDiv(windowEnd - now, step), steps)
  const budget = limit * steps
  const remaining = Math.max(0, Math.floor((budget - weight * left) / steps) - current)
  const resetAfter = current > 0 ? windowEnd + period - now : previous > 0 ? windowEnd - now : 0

  // A peek is never refused, even where the limit has since been lowered.
  if (cost === 0) return { retryAfter: 0, remaining, resetAfter }
  if (cost > limit) return { retryAfter: -1, remaining, resetAfter }
  if (cost > 0 && cost > remaining) {
    // The instant at which enough of a window has slid out: the previous one, or where that is not enough the current
    // one, once it has become the previous.
    const room = limit - current - cost
    if (room >= 0) {
      const retryAt = windowEnd - Math.floor((room * steps) / weight) * step
      return { retryAfter: retryAt - now, remaining, resetAfter }
    }
    const nextWeight = Math.min(current, limit)
    const retryAt = windowEnd + period - Math.floor(((limit - cost) * steps) / nextWeight) * step
    return { retryAfter: retryAt - now, remaining, resetAfter }
  }
  if (cost > 0) {
    current += cost
  } else if (spentAt === undefined) {
    const fromCurrent = Math.min(-cost, current)
    previous = previous + cost + fromCurrent
    current -= fromCurrent
  } else if (spentAt >= windowEnd - period && spentAt < windowEnd) {
    current += cost
  } else if (spentAt >= windowEnd - 2 * period && spentAt < windowEnd - period) {
    previous += cost
  }

  ;[previous, current] = [Math.max(0, previous), Math.max(0, current)]
  const newWeight = Math.min(previous, limit)
  const after = {
    remaining: Math.max(0, Math.floor((budget - newWeight * left) / steps) - current),
    resetAfter: current > 0 ? windowEnd + period - now : previous > 0 ? windowEnd - now : 0,
    state: [windowEnd + period, previous * 8388608 + current],
  } as const
  return { retryAfter: 0, remaining, resetAfter, after }
}
