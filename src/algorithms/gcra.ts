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
import { type Algorithm, ceilDiv, ceilToMs } from './algorithm.ts'

export const gcra: Algorithm = ({ limit, period, burst, cost, spent = -cost }, [idleAt, n], now, spentAt) => {
  const burstTolerance = burst * period
  let backlog = (idleAt - now) * limit - n
  // A little more than the burst is a clock set back (a failover), and drains. Twice the burst is no state of this rule.
  if (backlog < 0 || backlog > 2 * burstTolerance) backlog = 0
  const remaining = backlog < burstTolerance ? Math.floor((burstTolerance - backlog) / period) : 0
  const resetAfter = ceilDiv(backlog, limit)

  // A peek is never refused, even while more than the burst is to drain.
  if (cost === 0) return { retryAfter: 0, remaining, resetAfter }
  if (cost > burst) return { retryAfter: -1, remaining, resetAfter }
  let increment = cost * period
  if (cost > 0 && backlog + increment > burstTolerance) {
    return { retryAfter: ceilDiv(backlog + increment - burstTolerance, limit), remaining, resetAfter }
  }
  // What has drained since it was spent is not given back, but for what stays spent of it, which drained first. After a
  // clock set back nobody knows how much that is.
  if (cost < 0 && spentAt !== undefined) {
    const drained = (now - spentAt) * limit - (spent + cost) * period
    increment = spentAt > now ? 0 : Math.min(0, increment + Math.max(0, drained))
  }

  backlog = Math.max(0, backlog + increment)
  const drainedIn = ceilDiv(backlog, limit)
  const newIdleAt = ceilToMs(now + drainedIn)
  const after = {
    remaining: backlog < burstTolerance ? Math.floor((burstTolerance - backlog) / period) : 0,
    resetAfter: drainedIn,
    state: [newIdleAt, (newIdleAt - now) * limit - backlog],
  } as const
  return { retryAfter: 0, remaining, resetAfter, after }
}
