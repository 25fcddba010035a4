/**
 * Token bucket with continuous refill (J. Turner, "New directions in communications", 1986).
 * Lua twin: token-bucket.lua, section by section.
 *
 * A bucket of `burst` tokens, refilled continuously at `rate` tokens per `period`. A request takes as many tokens as it
 * costs. The level is counted in ticks: a token is `period` ticks, and each microsecond adds `rate` ticks, so no rate loses anything to
 * rounding. It admits exactly the requests that gcra with the same numbers admits.
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
    // If the clock was set back, as in a failover, the level can be below empty, and refills. More than a whole bucket below empty
    // cannot be a state of this rule, and is ignored.
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
    // Units that have been refilled since the request are not given back. The units that stay spent are taken to have been refilled first.
    // If the clock was set back since, it is unknown how much was refilled, and nothing is given back.
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
