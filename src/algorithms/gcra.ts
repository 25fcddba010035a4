/**
 * GCRA, the generic cell rate algorithm (ITU-T I.371; ATM Forum TM 4.0, "virtual scheduling").
 * Lua twin: gcra.lua, kept line for line.
 *
 * `limit` per `period` evenly spaced, `burst` of them at once. To space cells exactly where period / limit is no
 * whole number of microseconds, time is counted in ticks of 1 / limit microseconds: a unit of cost takes `period`
 * ticks, and a microsecond gives back `limit` of them.
 *
 * State: the theoretical arrival time (TAT), the instant at which the backlog will have drained, is n ticks before
 * idleAt.
 */
import { type Algorithm, ceilDiv } from './algorithm.ts'

export const gcra: Algorithm = ({ limit, period, burst, cost }, [idleAt, n], now) => {
  const burstTolerance = burst * period
  let backlog = (idleAt - now) * limit - n
  // A little more than the burst is a clock set back (a failover), and drains. Twice the burst is no state of this rule.
  if (backlog < 0 || backlog > 2 * burstTolerance) backlog = 0
  const remaining = backlog < burstTolerance ? Math.floor((burstTolerance - backlog) / period) : 0
  const resetAfter = ceilDiv(backlog, limit)

  if (cost > burst) return { retryAfter: -1, remaining, resetAfter }
  // A peek is never refused, even while more than the burst is to drain.
  const newBacklog = backlog + cost * period
  if (cost > 0 && newBacklog > burstTolerance) {
    return { retryAfter: ceilDiv(newBacklog - burstTolerance, limit), remaining, resetAfter }
  }
  const drainedIn = ceilDiv(newBacklog, limit)
  return { retryAfter: 0, remaining, resetAfter, next: [now + drainedIn, drainedIn * limit - newBacklog] }
}
