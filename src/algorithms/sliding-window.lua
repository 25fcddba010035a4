-- Sliding window over two counters. Model: sliding-window.ts, line for line.
--
-- What was spent in this window, plus what was spent in the one before, weighted
-- by the share of it that the last `period` still covers. An approximation: it
-- takes the previous window as evenly filled. The weight falls in `step`s of
-- microseconds, rounded up, so that all products stay exact.
--
-- State: idle_at is the end of the window after the current one; n is the
-- previous window's count times 2^23 plus the current one's.
--@ numbers limit, period, step

--@ read
local window_end = (floor(now / period) + 1) * period
local stored_end = idle_at - period
local previous, current = 0, 0
if stored_end == window_end or stored_end == window_end + period then
  -- The next window was left by a clock that has since been set back (a failover).
  window_end, previous = stored_end, floor(n / 8388608)
  current = n - previous * 8388608
elseif stored_end == window_end - period then
  previous = n % 8388608
end
-- A count above the limit is from before the limit was lowered, and weighs no more
-- than the limit. The count itself stays: a config with the higher limit may be
-- live beside this one.
local weight = previous < limit and previous or limit

-- Weights are counted in steps: all of a window is `steps`, all of the limit `budget`.
local steps = period / step
local left = ceil_div(window_end - now, step)
left = left < steps and left or steps
local budget = limit * steps
remaining = floor((budget - weight * left) / steps) - current
remaining = remaining > 0 and remaining or 0
reset_after = current > 0 and window_end + period - now or previous > 0 and window_end - now or 0

--@ check
if cost > limit then
  retry_after = -1
elseif cost > remaining then
  -- The instant at which enough of a window has slid out: the previous one, or
  -- where that is not enough the current one, once it has become the previous.
  local room = limit - current - cost
  if room >= 0 then
    retry_after = window_end - floor(room * steps / weight) * step - now
  else
    local next_weight = current < limit and current or limit
    retry_after = window_end + period - floor((limit - cost) * steps / next_weight) * step - now
  end
end

--@ spend
current = current + cost

--@ refund
if spent_at >= window_end - period and spent_at < window_end then
  current = current > units and current - units or 0
elseif spent_at >= window_end - 2 * period and spent_at < window_end - period then
  previous = previous > units and previous - units or 0
end

--@ write
local new_weight = previous < limit and previous or limit
new_remaining = floor((budget - new_weight * left) / steps) - current
new_remaining = new_remaining > 0 and new_remaining or 0
new_reset_after = current > 0 and window_end + period - now or previous > 0 and window_end - now or 0
new_idle_at, new_n = window_end + period, previous * 8388608 + current
