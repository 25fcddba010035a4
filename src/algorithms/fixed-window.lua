-- Fixed window, aligned to the epoch or to a calendar. Model: fixed-window.ts,
-- kept line for line.
--
-- At most `limit` in each window of `period`; across a boundary up to twice the
-- limit can pass within one period, which is the nature of the algorithm. The
-- ends of calendar windows are given: four in a row around the caller's idea of
-- now, of which the clock of this server picks.
--
-- State: idle_at is the end of the window, n what has been spent in it.
algorithms['fixed-window'] = function(limit, period, ends, cost, idle_at, n, now, spent_at)
  local window_start = floor(now / period) * period
  local window_end, next_end = window_start + period, window_start + 2 * period
  -- A caller's clock that is days behind has not sent the ends of today: windows of
  -- `period` stand in.
  local first, second, third, fourth
  if ends ~= '' then
    first, second, third, fourth = match(ends, '^(%d+) (%d+) (%d+) (%d+)$')
  end
  if first and now < fourth + 0 then
    -- Of a window that has ended for the caller only the end is known: nothing
    -- earlier than now is surely in it.
    window_start, window_end, next_end = now, first + 0, second + 0
    if now >= window_end then
      window_start, window_end, next_end = window_end, next_end, third + 0
    end
    if now >= window_end then
      window_start, window_end, next_end = window_end, next_end, fourth + 0
    end
    if now >= window_end then
      window_start, window_end, next_end = window_end, next_end, next_end + period
    end
  end
  local count = 0
  if idle_at == window_end then
    count = n
  elseif idle_at == next_end then
    -- A window that starts in the future is kept when it is the next one: the
    -- clock was set back (a failover) over a boundary, and opening the old
    -- window again would admit its limit twice.
    window_start, window_end, count = window_end, next_end, n
  end
  local remaining = count < limit and limit - count or 0
  local reset_after = count > 0 and window_end - now or 0

  -- A peek is never refused, even where the limit has since been lowered.
  if cost == 0 then
    return 0, remaining, reset_after
  end
  if cost > limit then
    return -1, remaining, reset_after
  end
  if cost > 0 and count + cost > limit then
    return window_end - now, remaining, reset_after
  end
  -- What was spent in another window is not given back to this one.
  if cost < 0 and spent_at and (spent_at < window_start or spent_at >= window_end) then
    cost = 0
  end

  count = count + cost
  count = count > 0 and count or 0
  return 0, remaining, reset_after,
    count < limit and limit - count or 0,
    count > 0 and window_end - now or 0, window_end, count
end
