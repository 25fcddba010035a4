-- Fixed window, aligned to the epoch or to a calendar. Model: fixed-window.ts,
-- section by section.
--
-- At most `limit` in each window of `period`; across a boundary up to twice the
-- limit can pass within one period, which is the nature of the algorithm. The
-- ends of calendar windows are given: four in a row around the gateway's clock,
-- from which the clock of this server picks ('' without a calendar).
--
-- State: idle_at is the end of the window, n what has been spent in it.
--@ numbers limit, period
--@ text ends
--@ keeps window_start, window_end, count

--@ read
window_start = now - now % period
window_end, count = window_start + period, 0
local next_end = window_end + period
--@ if ends
-- A gateway whose clock is days behind has not sent the ends of today: windows of
-- `period` stand in.
local first, second, third, fourth = match(ends, '^(%d+) (%d+) (%d+) (%d+)$')
if first and now < fourth + 0 then
  -- Of a window that has ended by the gateway's clock only the end is known:
  -- nothing before now is surely in it.
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
--@ end
if idle_at == window_end then
  count = n
elseif idle_at == next_end then
  -- A window that starts in the future is kept when it is the next one: the clock
  -- was set back (a failover) over a boundary, and opening the old window again
  -- would admit its limit twice.
  window_start, window_end, count = window_end, next_end, n
end

--@ check
if cost > limit then
  retry_after = -1
elseif count + cost > limit then
  retry_after = window_end - now
end

--@ spend
count = count + cost

--@ refund
-- What was spent in another window is not given back to this one.
if spent_at >= window_start and spent_at < window_end then
  count = count > units and count - units or 0
end

--@ standing
remaining = count < limit and limit - count or 0
reset_after = count > 0 and window_end - now or 0

--@ write
idle_at, n = window_end, count
