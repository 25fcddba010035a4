-- GCRA, the generic cell rate algorithm. Model: gcra.ts, kept line for line.
--
-- `limit` per `period` evenly spaced, `burst` of them at once. To space cells
-- exactly where period / limit is no whole number of microseconds, time is
-- counted in ticks of 1 / limit microseconds: a unit of cost takes `period`
-- ticks, and a microsecond gives back `limit` of them.
--
-- State: the theoretical arrival time (TAT), the instant at which the backlog
-- will have drained, is n ticks before idle_at.
algorithms['gcra'] = function(limit, period, burst, cost, idle_at, n, now, spent_at, spent)
  local burst_tolerance = burst * period
  local backlog = (idle_at - now) * limit - n
  -- A little more than the burst is a clock set back (a failover), and drains.
  -- Twice the burst is no state of this rule.
  if backlog < 0 or backlog > 2 * burst_tolerance then
    backlog = 0
  end
  local remaining = backlog < burst_tolerance and floor((burst_tolerance - backlog) / period) or 0
  local reset_after = ceil_div(backlog, limit)

  -- A peek is never refused, even while more than the burst is to drain.
  if cost == 0 then
    return 0, remaining, reset_after
  end
  if cost > burst + 0 then
    return -1, remaining, reset_after
  end
  local increment = cost * period
  if cost > 0 and backlog + increment > burst_tolerance then
    return ceil_div(backlog + increment - burst_tolerance, limit), remaining, reset_after
  end
  -- What has drained since it was spent is not given back, but for what stays spent
  -- of it, which drained first. After a clock set back nobody knows how much that is.
  if cost < 0 and spent_at then
    local drained = (now - spent_at) * limit - (spent + cost) * period
    increment = increment + (drained > 0 and drained or 0)
    increment = increment < 0 and spent_at <= now and increment or 0
  end

  backlog = backlog + increment
  backlog = backlog > 0 and backlog or 0
  local drained_in = ceil_div(backlog, limit)
  idle_at = ceil_to_ms(now + drained_in)
  return 0, remaining, reset_after,
    backlog < burst_tolerance and floor((burst_tolerance - backlog) / period) or 0,
    drained_in, idle_at, (idle_at - now) * limit - backlog
end
