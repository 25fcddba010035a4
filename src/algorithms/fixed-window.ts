/**
 * Fixed window, aligned to the epoch. Lua twin: fixed-window.lua, kept line for line.
 *
 * At most `limit` in each window of `period`; across a boundary up to twice the limit can pass within one
 * period, which is the nature of the algorithm.
 *
 * State: [windowEnd, count]. A window that has ended reads as idle.
 */
import type { Algorithm, Quota, State } from './algorithm.ts'

/** The window in force at `now`: its end and what has been spent in it. */
function windowAt(rule: Quota, state: State | undefined, now: number): State {
  const windowEnd = (Math.floor(now / rule.period) + 1) * rule.period
  // A window that starts in the future is kept when it is the next one: the clock was set back (a failover)
  // over a boundary, and opening the old window again would admit its limit twice.
  if (state && (state[0] === windowEnd || state[0] === windowEnd + rule.period)) return state
  return [windowEnd, 0]
}

export const fixedWindow: Algorithm = {
  check(rule, state, now) {
    const [windowEnd, count] = windowAt(rule, state, now)
    if (rule.cost > rule.limit) {
      return { retryAfter: -1 }
    }
    // A peek is never refused, even where the limit has since been lowered.
    if (rule.cost > 0 && count + rule.cost > rule.limit) {
      return { retryAfter: windowEnd - now }
    }
    return { retryAfter: 0, next: [windowEnd, count + rule.cost] }
  },

  peek(rule, state, now) {
    const [windowEnd, count] = windowAt(rule, state, now)
    return { remaining: Math.max(0, rule.limit - count), resetAfter: count > 0 ? windowEnd - now : 0 }
  },
}
