-- Sliding window over two counters. Model: sliding-window.ts, section by section.
--
-- Counts all units of the current window, and the units of the previous window times
-- a weight: the share of the previous window that the last `period` still covers. This
-- approximates a sliding log: it assumes that the previous window was evenly filled.
-- The weight falls in steps of `step` microseconds, rounded up, so that all products
-- stay exact. A window has period / step steps.
--
-- State: idle_at is the end of the window after the current one. n is the previous
-- window's count times 2^23, plus the current one's.
--@ numbers limit, period, step
--@ keeps window_end, previous, current, left

--@ read
window_end, previous, current = now - now % period + period, 0, 0
if idle_at == window_end + period or idle_at == window_end + 2 * period then
  -- The record is of this window or the next one. A record of the next one exists
  -- if the clock was set back, as in a failover.
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
-- A count above the limit was made before the limit was lowered, and counts as the
-- limit. The stored count stays, because a config with the higher limit may still be
-- live.
local capped = previous < limit and previous or limit
if cost > limit then
  retry_after = -1
elseif capped * left + (current + cost) * (period / step) > limit * (period / step) then
  -- Time until enough of the previous window has slid out. If that does not suffice:
  -- until enough of the current window has slid out, after it has become the previous
  -- one.
  local slid_end, room = window_end, limit - current - cost
  if room < 0 then
    slid_end, room, capped = window_end + period, limit - cost, current < limit and current or limit
  end
  retry_after = slid_end - floor_div(room * (period / step), capped) * step - now
end

--@ spend
--@ if settled
-- Both counts share one number of the record. A count from before the limit was
-- lowered stays, because the limit may rise again.
local most = MAX_DEBT * limit < 8388607 and MAX_DEBT * limit or 8388607
if current > most then
  most = current
end
--@ end
current = current + cost
--@ if settled
if current > most then
  current = most
end
--@ end

--@ refund
if spent_at >= window_end - period and spent_at < window_end then
  current = current > units and current - units or 0
elseif spent_at >= window_end - 2 * period and spent_at < window_end - period then
  previous = previous > units and previous - units or 0
end

--@ standing
local room = limit * (period / step) - (previous < limit and previous or limit) * left
remaining = floor_div(room, period / step) - current
--@ if settled
debt = remaining < 0 and -remaining or 0
--@ end
if remaining < 0 then
  remaining = 0
end
reset_after = current > 0 and window_end + period - now or previous > 0 and window_end - now or 0

--@ write
idle_at, n = window_end + period, previous * 8388608 + current
