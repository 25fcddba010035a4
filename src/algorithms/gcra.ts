/**
 * GCRA, the generic cell rate algorithm (ITU-T I.371; ATM Forum TM 4.0, "virtual scheduling").
 * Lua twin: gcra.lua, section by section.
 *
 * `rate` units per `period` evenly spaced, `burst` of them at once. To space cells exactly where period / rate is not a whole number
 * of microseconds, time is counted in ticks of 1 / rate microseconds: a unit of cost takes `period` ticks, and a
 * microsecond gives back `rate` of them.
 *
 * State: the theoretical arrival time (TAT), the instant at which the backlog will have drained, is n ticks before idleAt.
 */
import { ceilDiv, ceilToMs, modelOf } from './algorithm.ts'

interface Kept {
  rate: number
  period: number
  burst: number
  now: number
  backlog: number
}

export const gcra = modelOf<Kept>({
  read({ quota: { rate, period, burst }, state: [idleAt, n], now }) {
    let backlog = (idleAt - now) * rate - n
    // A backlog slightly above the burst comes from a clock that was set back (a failover), and drains. Twice the burst is
    // not a state of this rule.
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
    // What has drained since the request is not given back, except for the part of it that stays spent, which drained first.
    // After a clock set back it is unknown how much has drained, and nothing is given back.
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
