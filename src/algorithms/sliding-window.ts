/**
 * Sliding window over two counters (Cloudflare, "How we built rate limiting capable of scaling to millions of
 * domains", 2017). Lua twin: sliding-window.lua, line for line.
 *
 * What was spent in this window, plus what was spent in the one before, weighted by the share of it that the last
 * `period` still covers. An approximation: it takes the previous window as evenly filled. In any stretch of d <= period
 * at most limit × (1 + d / period). The weight falls in `step`s of microseconds, rounded up, so that all products
 * stay exact.
 *
 * State: idleAt is the end of the window after the current one; n is the previous window's count times 2^23 plus the
 * current one's.
 */
import { ceilDiv, modelOf, type Reading, type Standing } from './algorithm.ts'

/** Counts of both windows share one number of the record. */
export const MAX_WINDOW_COUNT = 2 ** 23 - 1

interface View extends Standing {
  limit: number
  period: number
  step: number
  now: number
  windowEnd: number
  previous: number
  current: number
  weight: number
  steps: number
  left: number
  budget: number
}

function read({ quota: { burst: limit, period, step = 1 }, state: [idleAt, n], now }: Reading): View {
  let windowEnd = (Math.floor(now / period) + 1) * period
  const storedEnd = idleAt - period
  let [previous, current] = [0, 0]
  if (storedEnd === windowEnd || storedEnd === windowEnd + period) {
    // The next window was left by a clock that has since been set back (a failover).
    ;[windowEnd, previous] = [storedEnd, Math.floor(n / 8388608)]
    current = n - previous * 8388608
  } else if (storedEnd === windowEnd - period) {
    previous = n % 8388608
  }
  // A count above the limit is from before the limit was lowered, and weighs no more than the limit. The count itself
  // stays: a config with the higher limit may be live beside this one.
  const weight = Math.min(previous, limit)

  // Weights are counted in steps: all of a window is `steps`, all of the limit `budget`.
  const steps = period / step
  const left = Math.min(ceilDiv(windowEnd - now, step), steps)
  const budget = limit * steps
  const remaining = Math.max(0, Math.floor((budget - weight * left) / steps) - current)
  const resetAfter = current > 0 ? windowEnd + period - now : previous > 0 ? windowEnd - now : 0
  const window = { now, windowEnd, previous, current, weight, steps, left, budget }
  return { limit, period, step, ...window, remaining, resetAfter }
}

function write(
  { limit, period, now, windowEnd, steps, left, budget }: View,
  previous: number,
  current: number,
) {
  const weight = Math.min(previous, limit)
  const remaining = Math.max(0, Math.floor((budget - weight * left) / steps) - current)
  const resetAfter = current > 0 ? windowEnd + period - now : previous > 0 ? windowEnd - now : 0
  const state = [windowEnd + period, previous * 8388608 + current] as const
  return { remaining, resetAfter, delay: 0, state }
}

export const slidingWindow = modelOf<View>({
  read,

  check({ limit, period, step, now, windowEnd, current, weight, steps, remaining }, cost) {
    if (cost > limit) return -1
    if (cost <= remaining) return 0
    // The instant at which enough of a window has slid out: the previous one, or where that is not enough the current
    // one, once it has become the previous.
    const room = limit - current - cost
    if (room >= 0) return windowEnd - Math.floor((room * steps) / weight) * step - now
    const nextWeight = Math.min(current, limit)
    return windowEnd + period - Math.floor(((limit - cost) * steps) / nextWeight) * step - now
  },

  spend: (view, cost) => write(view, view.previous, view.current + cost),

  refund(view, { units, spentAt }) {
    let { period, windowEnd, previous, current } = view
    if (spentAt >= windowEnd - period && spentAt < windowEnd) {
      current = Math.max(0, current - units)
    } else if (spentAt >= windowEnd - 2 * period && spentAt < windowEnd - period) {
      previous = Math.max(0, previous - units)
    }
    return write(view, previous, current)
  },
})
