/**
 * GCRA, the generic cell rate algorithm (ITU-T I.371; ATM Forum TM 4.0, "virtual scheduling").
 * Lua twin: gcra.lua, kept line for line.
 *
 * `limit` per `period` evenly spaced, `burst` of them at once. To space cells exactly where period / limit is
 * no whole number of microseconds, time is counted in ticks of 1 / limit microseconds: a unit of cost takes
 * `period` ticks, and a microsecond gives back `limit` of them.
 *
 * State: [idleAt, n]. The theoretical arrival time (TAT), the instant at which the backlog will have drained,
 * is n ticks before idleAt.
 */
import { type Algorithm, ceilDiv, type Quota, type State } from './algorithm.ts'

/** How much is still to drain, in ticks. */
function backlogAt(rule: Quota, state: State | undefined, now: number): number {
  if (!state) return 0
  const [idleAt, n] = state
  // n of another scale was written before the limit changed.
  const backlog = (idleAt - now) * rule.limit - (n < rule.limit ? n : 0)
  // A little more than the burst is a clock set back (a failover) or a burst that was lowered, and drains.
  // Twice the burst is no state of this rule.
  if (backlog > 2 * rule.burst * rule.period) return 0
  return Math.max(0, backlog)
}

export const gcra: Algorithm = {
  check(rule, state, now) {
    const burstTolerance = rule.burst * rule.period
    if (rule.cost > rule.burst) {
      return { retryAfter: -1 }
    }
    const backlog = backlogAt(rule, state, now) + rule.cost * rule.period
    // A peek is never refused, even where the burst has since been lowered.
    if (rule.cost > 0 && backlog > burstTolerance) {
      return { retryAfter: ceilDiv(backlog - burstTolerance, rule.limit) }
    }
    const drainedIn = ceilDiv(backlog, rule.limit)
    return { retryAfter: 0, next: [now + drainedIn, drainedIn * rule.limit - backlog] }
  },

  peek(rule, state, now) {
    const backlog = backlogAt(rule, state, now)
    const left = rule.burst * rule.period - backlog
    return {
      remaining: Math.max(0, Math.floor(left / rule.period)),
      resetAfter: ceilDiv(backlog, rule.limit),
    }
  },
}
