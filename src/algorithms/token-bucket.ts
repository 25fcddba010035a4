/**
 * Token bucket (Turner 1986; as in the Linux and Stripe descriptions of it, with continuous refill).
 * Lua twin: token-bucket.lua, line for line.
 *
 * A bucket of `burst` tokens, refilled continuously at `rate` tokens per `period`; a request takes as many as it
 * costs. The level is counted in ticks: a token is `period` of them, and a microsecond brings `rate`, so that nothing
 * is lost to rounding at any rate. It admits exactly what gcra with the same numbers admits.
 *
 * State: the bucket is full n ticks before idleAt.
 */
import { ceilDiv, ceilToMs, modelOf, type Reading, type Standing } from './algorithm.ts'

interface View extends Standing {
  rate: number
  period: number
  burst: number
  now: number
  capacity: number
  level: number
}

function read({ quota: { rate, period, burst }, state: [idleAt, n], now }: Reading): View {
  const capacity = burst * period
  let level = capacity - ((idleAt - now) * rate - n)
  // A level slightly below empty comes from a clock that was set back (a failover), and refills. A whole bucket below
  // empty is not a state of this rule.
  if (level > capacity || level < -capacity) level = capacity
  const remaining = level > 0 ? Math.floor(level / period) : 0
  const resetAfter = ceilDiv(capacity - level, rate)
  return { rate, period, burst, now, capacity, level, remaining, resetAfter }
}

function write({ rate, period, now, capacity }: View, level: number) {
  const resetAfter = ceilDiv(capacity - level, rate)
  const remaining = level > 0 ? Math.floor(level / period) : 0
  const idleAt = ceilToMs(now + resetAfter)
  return {
    ...{ remaining, resetAfter, delay: 0 },
    state: [idleAt, (idleAt - now) * rate - (capacity - level)],
  } as const
}

export const tokenBucket = modelOf<View>({
  read,

  check({ rate, period, burst, level }, cost) {
    if (cost > burst) return -1
    const missing = cost * period - level
    return missing > 0 ? ceilDiv(missing, rate) : 0
  },

  spend: (view, cost) => write(view, view.level - cost * view.period),

  refund(view, { units, spent, spentAt }) {
    const { rate, period, now, capacity, level } = view
    // What has been refilled since the request is not given back, except for the part of it that stays spent, which came
    // back first. After a clock set back it is unknown how much was refilled, and nothing is given back.
    const refilled = Math.max(0, (now - spentAt) * rate - (spent - units) * period)
    const back = spentAt > now ? 0 : Math.max(0, units * period - refilled)
    return write(view, Math.min(capacity, level + back))
  },
})
