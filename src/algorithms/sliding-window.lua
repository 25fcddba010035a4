-- Sliding window over two counters. Model: sliding-window.ts, kept line for line.
--
-- What was spent in this window, plus what was spent in the one before, weighted
-- by the share of it that the last `period` still covers. An approximation: it
-- takes the previous window as evenly filled. The weight falls in `step`s of
-- microseconds, rounded up, so that all products stay exact.
--
-- State: idle_at is the end of the window after the current one; n is the
-- previous window's count times 2^23 plus the current one's.
algorithms['sliding-window'] = function(limit, period, step, cost, idle_at, n, now, spent_at)
  local window_end = (floor(now / period) + 1) * period
  local their_end = idle_at - period
  local previous, current = 0, 0
  if their_end == window_end or their_end == window_end + period then
    -- The next window is one that a clock set back (a failover) has left.
    window_end, previous = their_end, floor(n / 8388608)
    current = n - previous * 8388608
  elseif their_end == window_end - period then
    previous = n % 8388608
  end
  -- More than the limit is from before the limit was lowered, and weighs no more.
  -- It stays: a config with the higher limit may be live beside this one.
  local weight = previous < limit and previous or limit

  -- Weights are counted in steps: all of a window is `steps`, all of the limit `budget`.
  local steps = period / step
  local left = ceil_div(window_end - now, step)
  left = left < steps and left or steps
  local budget = limit * steps
  local remaining = floor((budget - weight * left) / steps) - current
  remaining = remaining > 0 and remaining or 0
  local reset_after = current > 0 and window_end + period - now or previous > 0 and window_end - now or 0

  -- A peek is never refused, even where the limit has since been lowered.
  if cost == 0 then
    return 0, remaining, reset_after
  end
  if cost > limit then
    return -1, remaining, reset_after
  end
  if cost > 0 and cost > remaining then
    -- The instant at which enough of a window has slid out: the previous one, or
    -- where that is not enough the current one, once it has become the previous.
    local room = limit - current - cost
    if room >= 0 then
      return window_end - floor(room * steps / weight) * step - now, remaining, reset_after
    end
    local next_weight = current < limit and current or limit
    return window_end + period - floor((limit - cost) * steps / next_weight) * step - now, remaining, reset_after
  end
  if cost > 0 then
    current = current + cost
  elseif not spent_at then
    local from_current = -cost < current and -cost or current
    previous = previous + cost + from_current
    current = current - from_current
  elseif spent_at >= window_end - period and spent_at < window_end then
    current = current + cost
  elseif spent_at >= window_end - 2 * period and spent_at < window_end - period then
    previous = previous + cost
  end

  previous, current = previous > 0 and previous or 0, current > 0 and current or 0
  local new_weight = previous < limit and previous or limit
  local new_remaining = floor((budget - new_weight * left) / steps) - current
  return 0, remaining, reset_after,
    new_remaining > 0 and new_remaining or 0,
    current > 0 and window_end + period - now or previous > 0 and window_end - now or 0,
    window_end + period, previous * 8388608 + current
end
