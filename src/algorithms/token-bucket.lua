-- Token bucket. Model: token-bucket.ts, kept line for line.
--
-- A bucket of `burst` tokens, refilled continuously at `limit` tokens per
-- `period`; a request takes as many as it costs. The level is counted in ticks:
-- a token is `period` of them, and a microsecond brings `limit`, so that nothing
-- is lost to rounding at any rate.
--
-- State: the bucket is full n ticks before idle_at.
algorithms['token-bucket'] = function(limit, period, burst, cost, idle_at, n, now, spent_at, spent)
  local capacity = burst * period
  local level = capacity - ((idle_at - now) * limit - n)
  -- A little less than empty is a clock set back (a failover), and refills. A
  -- whole bucket less is no state of this rule.
  if level > capacity or level < -capacity then
    level = capacity
  end
  local remaining = level > 0 and floor(level / period) or 0
  local reset_after = ceil_div(capacity - level, limit)

  -- A peek is never refused, even from an empty bucket.
  if cost == 0 then
    return 0, remaining, reset_after
  end
  if cost > burst + 0 then
    return -1, remaining, reset_after
  end
  local price = cost * period
  if cost > 0 and price > level then
    return ceil_div(price - level, limit), remaining, reset_after
  end
  -- What has been refilled since it was spent is not given back, but for what stays
  -- spent of it, which came back first. After a clock set back nobody knows how much
  -- that is.
  if cost < 0 and spent_at then
    local refilled = (now - spent_at) * limit - (spent + cost) * period
    price = price + (refilled > 0 and refilled or 0)
    price = price < 0 and spent_at <= now and price or 0
  end

  level = level - price
  level = level < capacity and level or capacity
  local full_in = ceil_div(capacity - level, limit)
  idle_at = ceil_to_ms(now + full_in)
  return 0, remaining, reset_after,
    level > 0 and floor(level / period) or 0,
    full_in, idle_at, (idle_at - now) * limit - (capacity - level)
end
