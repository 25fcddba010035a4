-- Fixed window, aligned to the epoch. Model: fixed-window.ts, kept line for line.
--
-- At most `limit` in each window of `period`; across a boundary up to twice the
-- limit can pass within one period, which is the nature of the algorithm.
--
-- State: { window_end, count }. A window that has ended reads as idle.

-- The window in force at `now`: its end and what has been spent in it.
local function fixed_window_at(rule, state, now)
  local window_end = (floor(now / rule.period) + 1) * rule.period
  if state then
    -- A window that starts in the future is kept when it is the next one: the
    -- clock was set back (a failover) over a boundary, and opening the old
    -- window again would admit its limit twice.
    if state[1] == window_end or state[1] == window_end + rule.period then
      return state[1], state[2]
    end
  end
  return window_end, 0
end

algorithms['fixed-window'] = {
  -- How long this cost has to wait (0: not at all, -1: it can never be
  -- admitted), and the state once it is admitted. Writes nothing.
  check = function(rule, state, now)
    local window_end, count = fixed_window_at(rule, state, now)
    if rule.cost > rule.limit then
      return -1, nil
    end
    -- A peek is never refused, even where the limit has since been lowered.
    if rule.cost > 0 and count + rule.cost > rule.limit then
      return window_end - now, nil
    end
    return 0, { window_end, count + rule.cost }
  end,

  -- What is left, and after how long all of it will be back.
  peek = function(rule, state, now)
    local window_end, count = fixed_window_at(rule, state, now)
    return max(0, rule.limit - count), count > 0 and window_end - now or 0
  end,
}
