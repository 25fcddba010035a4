-- Fixed window, aligned to the epoch. Model: fixed-window.ts, kept line for line.
--
-- At most `limit` in each window of `period`; across a boundary up to twice the
-- limit can pass within one period, which is the nature of the algorithm.
--
-- State: idle_at is the end of the window, n what has been spent in it.
algorithms['fixed-window'] = function(limit, period, burst, cost, idle_at, n, now)
  local window_end, count = (floor(now / period) + 1) * period, 0
  -- A window that starts in the future is kept when it is the next one: the
  -- clock was set back (a failover) over a boundary, and opening the old window
  -- again would admit its limit twice.
  if idle_at == window_end or idle_at == window_end + period then
    window_end, count = idle_at, n
  end
  local remaining = count < limit and limit - count or 0
  local reset_after = count > 0 and window_end - now or 0

  if cost > limit then
    return -1, remaining, reset_after
  end
  -- A peek is never refused, even where the limit has since been lowered.
  if cost > 0 and count + cost > limit then
    return window_end - now, remaining, reset_after
  end
  return 0, remaining, reset_after, window_end, count + cost
end
