/**
 * Leaky bucket as a queue (Tanenbaum, Computer Networks: "the leaky bucket algorithm"). It shapes traffic; the leaky bucket
 * as a meter is gcra. Lua twin: leaky-bucket.lua, section by section.
 *
 * Requests depart evenly, `rate` units per `period`. The bucket holds at most `burst` units, including the one that departs.
 * An admitted request is delayed until the units before it have leaked out. Time is counted in ticks as in gcra.ts, so that
 * departures never drift.
 *
 * A request can say how long it would wait. It does not join if its turn would come later.
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
  wait: number | undefined
}

export const leakyBucket = modelOf<Kept>({
  read({ quota: { rate, period, burst }, state: [idleAt, n], now, wait }) {
    let content = (idleAt - now) * rate - n
    // If the clock was set back, as in a failover, the content can be above `burst`. It then leaks out as usual. A content above twice the
    // burst cannot come from this rule, and counts as empty.
    if (content < 0 || content > 2 * (burst * period)) content = 0
    return { rate, period, burst, now, content, wait }
  },

  check({ rate, period, burst, content, wait = Number.POSITIVE_INFINITY }, cost) {
    const excess = Math.max(content + cost * period - burst * period, content - wait * rate)
    if (cost > burst) return -1
    return excess > 0 ? ceilDiv(excess, rate) : 0
  },

  spend(kept, cost) {
    const delay = ceilDiv(kept.content, kept.rate)
    kept.content += cost * kept.period
    return delay
  },

  // A place is given back only if it is the last one. The departures of the requests behind another place are fixed, so a new request
  // would depart together with the last of them. With each place, the instant at which the bucket is empty moves by at least one unit. So
  // the place is the last one if the bucket is empty at its end.
  refund(kept, { units, spent, spentAt }) {
    const { rate, period, now, content, wait } = kept
    if (wait === undefined) return
    // `wait` is rounded up to microseconds.
    const behind = content - (wait * rate + spent * period - (now - spentAt) * rate)
    if (behind <= 0 && behind > -rate) kept.content = Math.max(0, content - units * period)
  },

  standing({ rate, period, burst, content }) {
    const room = burst * period - content
    return { remaining: room > 0 ? Math.floor(room / period) : 0, resetAfter: ceilDiv(content, rate) }
  },

  write({ rate, now, content }, { resetAfter }) {
    const idleAt = ceilToMs(now + resetAfter)
    return [idleAt, (idleAt - now) * rate - content]
  },
})
