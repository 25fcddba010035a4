/**
 * Token bucket (Turner 1986; as in the Linux and Stripe descriptions of it, with continuous refill).
 * Lua twin: token-bucket.lua, kept line for line.
 *
 * A bucket of `burst` tokens, refilled continuously at `limit` tokens per `period`; a request takes as many as it
 * costs. The level is counted in ticks: a token is `period` of them, and a microsecond brings `limit`, so that nothing
 * is lost to rounding at any rate. It admits exactly what gcra with the same numbers admits.
 *
 * State: the bucket is full n ticks before idleAt.
 */
import { type Algorithm, ceilDiv, ceilToMs } from './algorithm.ts'

export const tokenBucket: Algorithm = (
  { limit, period, burst, cost, spent = -cost },
  [idleAt, n],
  now,
  spentAt,
) => {
  const capacity = burst * period
  let level = capacity - ((idleAt - now) * limit - n)
  // A little less than empty is a clock set back (a failover), and refills. A whole bucket less is no state of this rule.
  if (level > capacity || level < -capacity) level = capacity
  const remaining = level > 0 ? Math.floor(level / period) : 0
  const resetAfter = ceilDiv(capacity - level, limit)

  // A peek is never refused, even from an empty bucket.
  if (cost === 0) return { retryAfter: 0, remaining, resetAfter }
  if (cost > burst) return { retryAfter: -1, remaining, resetAfter }
  let price = cost * period
  if (cost > 0 && price > level) return { retryAfter: ceilDiv(price - level, limit), remaining, resetAfter }
  // What has been refilled since it was spent is not given back, but for what stays spent of it, which came back first.
  // After a clock set back nobody knows how much that is.
  if (cost < 0 && spentAt !== undefined) {
    const refilled = (now - spentAt) * limit - (spent + cost) * period
    price = spentAt > now ? 0 : Math.min(0, price + Math.max(0, refilled))
  }

  level = Math.min(capacity, level - price)
  const fullIn = ceilDiv(capacity - level, limit)
  const newIdleAt = ceilToMs(now + fullIn)
  const after = {
    remaining: level > 0 ? Math.floor(level / period) : 0,
    resetAfter: fullIn,
    state: [newIdleAt, (newIdleAt - now) * limit - (capacity - level)],
  } as const
  return { retryAfter: 0, remaining, resetAfter, after }
}
