-- Sliding window over two counters. Model: sliding-window.ts, section by section.
--
-- What was spent in this window, plus what was spent in the one before, weighted
-- by the share of it that the last `period` still covers. An approximation: it
-- takes the previous window as evenly filled. The weight falls in `step`s of
-- microseconds, rounded up, so that all products stay exact: all of a window is
-- period / step of them.
--
-- State: idle_at is the end of the window after the current one; n is the
-- previous window's count times 2^23 plus the current one's.
--@ numbers limit, period, step
--@ keeps window_end, previous, current, left

--@ read
window_end, previous, current = now - now % period + period, 0, 0
if idle_at == window_end + period or idle_at == window_end + 2 * period then
  -- The next window was left by a clock that has since been set back (a failover).
  window_end, previous = idle_at - period, floor_div(n, 8388608)
  current = n - previous * 8388608
elseif idle_at == window_end then
  previous = n % 8388608
end
left = ceil_div(window_end - now, step)
if left > period / step then
  left = period / step
end

--@ check
-- A count above the limit is from before the limit was lowered, and weighs no more
-- than the limit. The count itself stays: a config with the higher limit may be
-- live beside this one.
local weight = previous < limit and previous or limit
if cost > limit then
  retry_after = -1
elseif weight * left + (current + cost) * (period / step) > limit * (period / step) then
  -- The instant at which enough of a window has slid out: the previous one, or
  -- where that is not enough the current one, once it has become the previous.
  local slid_end, room = window_end, limit - current - cost
  if room < 0 then
    slid_end, room, weight = window_end + period, limit - cost, current < limit and current or limit
  end
  retry_after = slid_end - floor_div(room * (period / step), weight) * step - now
end

--@ spend
current = current + cost

--@ refund
if spent_at >= window_end - period and spent_at < window_end then
  current = current > units and current - units or 0
elseif spent_at >= window_end - 2 * period and spent_at < window_end - period then
  previous = previous > units and previous - units or 0
end

--@ standing
local room = limit * (period / step) - (previous < limit and previous or limit) * left
remaining = floor_div(room, period / step) - current
if remaining < 0 then
  remaining = 0
end
reset_after = current > 0 and window_end + period - now or previous > 0 and window_end - now or 0

--@ write
idle_at, n = window_end + period, previous * 8388608 + current
