-- GCRA, the generic cell rate algorithm. Model: gcra.ts, kept line for line.
--
-- `limit` per `period` evenly spaced, `burst` of them at once. To space cells
-- exactly where period / limit is no whole number of microseconds, time is
-- counted in ticks of 1 / limit microseconds: a unit of cost takes `period`
-- ticks, and a microsecond gives back `limit` of them.
--
-- State: { idle_at, n }. The theoretical arrival time (TAT), the instant at
-- which the backlog will have drained, is n ticks before idle_at.

-- How much is still to drain, in ticks.
local function gcra_backlog(rule, state, now)
  if not state then
    return 0
  end
  local idle_at, n = state[1], state[2]
  -- n of another scale was written before the limit changed.
  local backlog = (idle_at - now) * rule.limit - (n < rule.limit and n or 0)
  -- A little more than the burst is a clock set back (a failover) or a burst
  -- that was lowered, and drains. Twice the burst is no state of this rule.
  if backlog > 2 * rule.burst * rule.period then
    return 0
  end
  return max(0, backlog)
end

algorithms['gcra'] = {
  -- How long this cost has to wait (0: not at all, -1: it can never be
  -- admitted), and the state once it is admitted. Writes nothing.
  check = function(rule, state, now)
    local burst_tolerance = rule.burst * rule.period
    if rule.cost > rule.burst then
      return -1, nil
    end
    local backlog = gcra_backlog(rule, state, now) + rule.cost * rule.period
    -- A peek is never refused, even where the burst has since been lowered.
    if rule.cost > 0 and backlog > burst_tolerance then
      return ceil_div(backlog - burst_tolerance, rule.limit), nil
    end
    local drained_in = ceil_div(backlog, rule.limit)
    return 0, { now + drained_in, drained_in * rule.limit - backlog }
  end,

  -- What is left, and after how long all of it will be back.
  peek = function(rule, state, now)
    local backlog = gcra_backlog(rule, state, now)
    local left = rule.burst * rule.period - backlog
    return max(0, floor(left / rule.period)), ceil_div(backlog, rule.limit)
  end,
}
