/**
 * Leaky bucket as a queue (Tanenbaum, Computer Networks: "the leaky bucket algorithm"). It shapes traffic; the leaky bucket
 * as a meter is gcra. Lua twin: leaky-bucket.lua, section by section.
 *
 * Requests depart evenly, `rate` units per `period`. The bucket holds at most `burst` units, including the one that departs.
 * An admitted request is delayed until the units before it have leaked out. Time is counted in ticks as in gcra.ts, so that
 * departures never drift.
 *
 * State: the bucket is empty n ticks before idleAt.
 */
import { ceilDiv, ceilToMs, modelOf } from './algorithm.ts'

interface Kept {
  rate: number
  period: number
  burst: number
  now: number
  content: number
}

export const leakyBucket = modelOf<Kept>({
  read({ quota: { rate, period, burst }, state: [idleAt, n], now }) {
    let content = (idleAt - now) * rate - n
    // If the clock was set back, as in a failover, the content can be above `burst`. It then leaks out as usual. A content above twice the
    // burst cannot come from this rule, and counts as empty.
    if (content < 0 || content > 2 * (burst * period)) content = 0
    return { rate, period, burst, now, content }
  },

  check({ rate, period, burst, content }, cost) {
    const excess = content + cost * period - burst * period
    if (cost > burst) return -1
    return excess > 0 ? ceilDiv(excess, rate) : 0
  },

  spend(kept, cost) {
    const delay = ceilDiv(kept.content, kept.rate)
    kept.content += cost * kept.period
    return delay
  },

  // A place in the queue is not given back: the departures of the requests behind it are fixed, so a new request would depart
  // together with the last of them.
  refund() {},

  standing({ rate, period, burst, content }) {
    const room = burst * period - content
    return { remaining: room > 0 ? Math.floor(room / period) : 0, resetAfter: ceilDiv(content, rate) }
  },

  write({ rate, now, content }, { resetAfter }) {
    const idleAt = ceilToMs(now + resetAfter)
    return [idleAt, (idleAt - now) * rate - content]
  },
})
