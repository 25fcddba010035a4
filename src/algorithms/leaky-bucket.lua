-- Leaky bucket as a queue. Model: leaky-bucket.ts, kept line for line.
--
-- Requests depart evenly, `limit` per `period`; up to `burst` units are in the
-- bucket at a time, the one that departs included. An admitted request is told
-- its delay, the time until what came before it has leaked out. Counted in ticks
-- as in gcra.lua, so that departures never drift.
--
-- State: the bucket is empty n ticks before idle_at.
algorithms['leaky-bucket'] = function(limit, period, burst, cost, idle_at, n, now, spent_at)
  local capacity = burst * period
  local content = (idle_at - now) * limit - n
  -- A little more than full is a clock set back (a failover), and leaks out. Twice
  -- as much is no state of this rule.
  if content < 0 or content > 2 * capacity then
    content = 0
  end
  local remaining = content < capacity and floor((capacity - content) / period) or 0
  local reset_after = ceil_div(content, limit)

  -- A peek is never refused, even by a full bucket.
  if cost == 0 then
    return 0, remaining, reset_after
  end
  if cost > burst + 0 then
    return -1, remaining, reset_after
  end
  local volume = cost * period
  if cost > 0 and content + volume > capacity then
    return ceil_div(content + volume - capacity, limit), remaining, reset_after
  end
  -- A place in the queue is not given back: those behind it have been told when
  -- they depart, and a newcomer would depart together with the last of them.
  if cost < 0 and spent_at then
    volume = 0
  end

  local delay = cost > 0 and reset_after or 0
  content = content + volume
  content = content > 0 and content or 0
  local empty_in = ceil_div(content, limit)
  idle_at = ceil_to_ms(now + empty_in)
  return 0, remaining, reset_after,
    content < capacity and floor((capacity - content) / period) or 0,
    empty_in, idle_at, (idle_at - now) * limit - content, delay
end
