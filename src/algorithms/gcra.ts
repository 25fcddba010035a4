/**
 * GCRA, the generic cell rate algorithm (ITU-T I.371; ATM Forum TM 4.0, "virtual scheduling").
 * Lua twin: gcra.lua, section by section.
 *
 * Admits `rate` units per `period`, evenly spaced, and up to `burst` units at once. Time is counted in ticks of 1 / rate
 * microseconds, so that the spacing is exact even if period / rate is not a whole number of microseconds: a unit adds `period` ticks to
 * the backlog, and each microsecond removes `rate` ticks.
 *
 * State: the theoretical arrival time (TAT), at which the backlog will have drained, is n ticks before idleAt.
 */
import { ceilDiv, ceilToMs, modelOf } from './algorithm.ts'

export interface Kept {
  rate: number
  period: number
  burst: number
  now: number
  backlog: number
}

export const gcra = modelOf<Kept>({
  read({ quota: { rate, period, burst }, state: [idleAt, n], now }) {
    let backlog = (idleAt - now) * rate - n
    // If the clock was set back, as in a failover, the backlog can be above the burst, and drains. More than twice the burst cannot be
    // a state of this rule, and is ignored.
    if (backlog < 0 || backlog > 2 * (burst * period)) backlog = 0
    return { rate, period, burst, now, backlog }
  },

  check({ rate, period, burst, backlog }, cost) {
    const excess = backlog + cost * period - burst * period
    if (cost > burst) return -1
    return excess > 0 ? ceilDiv(excess, rate) : 0
  },

  spend(kept, cost) {
    kept.backlog += cost * kept.period
    return undefined
  },

  refund(kept, { units, spent, spentAt }) {
    const { rate, period, now, backlog } = kept
    // Units that have drained since the request are not given back. The units that stay spent are taken to have drained first.
    // If the clock was set back since, it is unknown how much has drained, and nothing is given back.
    const drained = Math.max(0, (now - spentAt) * rate - (spent - units) * period)
    const back = spentAt > now ? 0 : Math.max(0, units * period - drained)
    kept.backlog = Math.max(0, backlog - back)
  },

  standing({ rate, period, burst, backlog }) {
    const room = burst * period - backlog
    return { remaining: room > 0 ? Math.floor(room / period) : 0, resetAfter: ceilDiv(backlog, rate) }
  },

  write({ rate, now, backlog }, { resetAfter }) {
    const idleAt = ceilToMs(now + resetAfter)
    return [idleAt, (idleAt - now) * rate - backlog]
  },
})
