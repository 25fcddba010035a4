/**
 * Leaky bucket as a queue (Tanenbaum, Computer Networks: "the leaky bucket algorithm"; a traffic shaper, where the
 * leaky bucket as a meter is gcra). Lua twin: leaky-bucket.lua, line for line.
 *
 * Requests depart evenly, `rate` units per `period`; up to `burst` units are in the bucket at a time, the one that departs
 * included. The delay of an admitted request is the time until what came before it has leaked out. Counted in ticks as in
 * gcra.ts, so that departures never drift.
 *
 * State: the bucket is empty n ticks before idleAt.
 */
import { type After, ceilDiv, ceilToMs, modelOf, type Reading, type Standing } from './algorithm.ts'

interface View extends Standing {
  rate: number
  period: number
  burst: number
  now: number
  capacity: number
  content: number
}

function read({ quota: { rate, period, burst }, state: [idleAt, n], now }: Reading): View {
  const capacity = burst * period
  let content = (idleAt - now) * rate - n
  // A content slightly above full comes from a clock that was set back (a failover), and leaks out. Twice as much is not a
  // state of this rule.
  if (content < 0 || content > 2 * capacity) content = 0
  const remaining = content < capacity ? Math.floor((capacity - content) / period) : 0
  const resetAfter = ceilDiv(content, rate)
  return { rate, period, burst, now, capacity, content, remaining, resetAfter }
}

function write({ rate, period, now, capacity }: View, content: number, delay: number): After {
  const resetAfter = ceilDiv(content, rate)
  const remaining = content < capacity ? Math.floor((capacity - content) / period) : 0
  const idleAt = ceilToMs(now + resetAfter)
  return { remaining, resetAfter, delay, state: [idleAt, (idleAt - now) * rate - content] }
}

export const leakyBucket = modelOf<View>({
  read,

  check({ rate, period, burst, capacity, content }, cost) {
    if (cost > burst) return -1
    const excess = content + cost * period - capacity
    return excess > 0 ? ceilDiv(excess, rate) : 0
  },

  spend: (view, cost) => write(view, view.content + cost * view.period, view.resetAfter),

  // A place in the queue is not given back: the departures of the requests behind it are fixed, and a newcomer would depart
  // together with the last of them.
  refund: view => write(view, view.content, 0),
})
