/**
 * Token bucket (Turner 1986; as in the Linux and Stripe descriptions of it, with continuous refill).
 * Lua twin: token-bucket.lua, section by section.
 *
 * A bucket of `burst` tokens, refilled continuously at `rate` tokens per `period`; a request takes as many as it
 * costs. The level is counted in ticks: a token is `period` of them, and a microsecond brings `rate`, so that nothing
 * is lost to rounding at any rate. It admits exactly what gcra with the same numbers admits.
 *
 * State: the bucket is full n ticks before idleAt.
 */
import { ceilDiv, ceilToMs, modelOf } from './algorithm.ts'

interface Kept {
  rate: number
  period: number
  burst: number
  now: number
  level: number
}

export const tokenBucket = modelOf<Kept>({
  read({ quota: { rate, period, burst }, state: [idleAt, n], now }) {
    let level = burst * period - ((idleAt - now) * rate - n)
    // A level slightly below empty comes from a clock that was set back (a failover), and refills. A whole bucket below
    // empty is not a state of this rule.
    if (level > burst * period || level < -(burst * period)) level = burst * period
    return { rate, period, burst, now, level }
  },

  check({ rate, period, burst, level }, cost) {
    const missing = cost * period - level
    if (cost > burst) return -1
    return missing > 0 ? ceilDiv(missing, rate) : 0
  },

  spend(kept, cost) {
    kept.level -= cost * kept.period
    return undefined
  },

  refund(kept, { units, spent, spentAt }) {
    const { rate, period, burst, now, level } = kept
    // What has been refilled since the request is not given back, except for the part of it that stays spent, which came
    // back first. After a clock set back it is unknown how much was refilled, and nothing is given back.
    const refilled = Math.max(0, (now - spentAt) * rate - (spent - units) * period)
    const back = spentAt > now ? 0 : Math.max(0, units * period - refilled)
    kept.level = Math.min(burst * period, level + back)
  },

  standing({ rate, period, burst, level }) {
    const missing = burst * period - level
    return { remaining: level > 0 ? Math.floor(level / period) : 0, resetAfter: ceilDiv(missing, rate) }
  },

  write({ rate, period, burst, now, level }, { resetAfter }) {
    const idleAt = ceilToMs(now + resetAfter)
    return [idleAt, (idleAt - now) * rate - (burst * period - level)]
  },
})
