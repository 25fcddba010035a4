/**
 * Leaky bucket as a queue (Tanenbaum, Computer Networks: "the leaky bucket algorithm"; a traffic shaper, where the
 * leaky bucket as a meter is gcra). Lua twin: leaky-bucket.lua, kept line for line.
 *
 * Requests depart evenly, `limit` per `period`; up to `burst` units are in the bucket at a time, the one that departs
 * included. An admitted request is told its delay, the time until what came before it has leaked out. Counted in
 * ticks as in gcra.ts, so that departures never drift.
 *
 * State: the bucket is empty n ticks before idleAt.
 */
import { type Algorithm, ceilDiv, ceilToMs } from './algorithm.ts'

export const leakyBucket: Algorithm = ({ limit, period, burst, cost }, [idleAt, n], now, spentAt) => {
  const capacity = burst * period
  let content = (idleAt - now) * limit - n
  // A little more than full is a clock set back (a failover), and leaks out. Twice as much is no state of this rule.
  if (content < 0 || content > 2 * capacity) content = 0
  const remaining = content < capacity ? Math.floor((capacity - content) / period) : 0
  const resetAfter = ceilDiv(content, limit)

  // A peek is never refused, even by a full bucket.
  if (cost === 0) return { retryAfter: 0, remaining, resetAfter }
  if (cost > burst) return { retryAfter: -1, remaining, resetAfter }
  let volume = cost * period
  if (cost > 0 && content + volume > capacity) {
    return { retryAfter: ceilDiv(content + volume - capacity, limit), remaining, resetAfter }
  }
  // A place in the queue is not given back: those behind it have been told when they depart, and a newcomer would
  // depart together with the last of them.
  if (cost < 0 && spentAt !== undefined) volume = 0

  const delay = cost > 0 ? resetAfter : 0
  content = Math.max(0, content + volume)
  const emptyIn = ceilDiv(content, limit)
  const newIdleAt = ceilToMs(now + emptyIn)
  const after = {
    remaining: content < capacity ? Math.floor((capacity - content) / period) : 0,
    resetAfter: emptyIn,
    state: [newIdleAt, (newIdleAt - now) * limit - content],
    delay,
  } as const
  return { retryAfter: 0, remaining, resetAfter, after }
}
