/**
 * GCRA, the generic cell rate algorithm (ITU-T I.371; ATM Forum TM 4.0, "virtual scheduling").
 * Lua twin: gcra.lua, line for line.
 *
 * `rate` units per `period` evenly spaced, `burst` of them at once. To space cells exactly where period / rate is not a whole number
 * of microseconds, time is counted in ticks of 1 / rate microseconds: a unit of cost takes `period` ticks, and a
 * microsecond gives back `rate` of them.
 *
 * State: the theoretical arrival time (TAT), the instant at which the backlog will have drained, is n ticks before idleAt.
 */
import { ceilDiv, ceilToMs, modelOf, type Reading, type Standing } from './algorithm.ts'

interface View extends Standing {
  rate: number
  period: number
  burst: number
  now: number
  burstTolerance: number
  backlog: number
}

function read({ quota: { rate, period, burst }, state: [idleAt, n], now }: Reading): View {
  const burstTolerance = burst * period
  let backlog = (idleAt - now) * rate - n
  // A backlog slightly above the burst comes from a clock that was set back (a failover), and drains. Twice the burst is
  // not a state of this rule.
  if (backlog < 0 || backlog > 2 * burstTolerance) backlog = 0
  const remaining = backlog < burstTolerance ? Math.floor((burstTolerance - backlog) / period) : 0
  const resetAfter = ceilDiv(backlog, rate)
  return { rate, period, burst, now, burstTolerance, backlog, remaining, resetAfter }
}

function write({ rate, period, now, burstTolerance }: View, backlog: number) {
  const resetAfter = ceilDiv(backlog, rate)
  const remaining = backlog < burstTolerance ? Math.floor((burstTolerance - backlog) / period) : 0
  const idleAt = ceilToMs(now + resetAfter)
  return { remaining, resetAfter, delay: 0, state: [idleAt, (idleAt - now) * rate - backlog] } as const
}

export const gcra = modelOf<View>({
  read,

  check({ rate, period, burst, burstTolerance, backlog }, cost) {
    if (cost > burst) return -1
    const excess = backlog + cost * period - burstTolerance
    return excess > 0 ? ceilDiv(excess, rate) : 0
  },

  spend: (view, cost) => write(view, view.backlog + cost * view.period),

  refund(view, { units, spent, spentAt }) {
    const { rate, period, now, backlog } = view
    // What has drained since the request is not given back, except for the part of it that stays spent, which drained first.
    // After a clock set back it is unknown how much has drained, and nothing is given back.
    const drained = Math.max(0, (now - spentAt) * rate - (spent - units) * period)
    const back = spentAt > now ? 0 : Math.max(0, units * period - drained)
    return write(view, Math.max(0, backlog - back))
  },
})
