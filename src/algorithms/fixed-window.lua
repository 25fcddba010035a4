-- Fixed window. Its start is aligned to the epoch or to a calendar, or is its first
-- request. Model: fixed-window.ts, section by section.
--
-- Admits at most `limit` in each window of `period`. Within one period that spans
-- a boundary, up to twice the limit can pass: this is a property of the algorithm.
-- The ends of calendar windows come with the call of the script: four consecutive
-- ends around the isolate's time, from which the time of this server selects the
-- window. A rule without a calendar has no `ends`.
--
-- State: idle_at is the end of the window, n the units spent in it.
--@ numbers limit, period
--@ text ends
--@ keeps window_start, window_end, count

--@ read
--@ if first_request
-- The first unit opens a window, which starts with its millisecond, because a record
-- has whole milliseconds. A peek or a refused request opens none. A window without
-- units is not open: after a refund of all of them, nothing was spent. Otherwise, the
-- budget of that window and that of the next one could be spent around its end.
--
-- A record that ends more than a period ahead was written before the clock was set
-- back. Its window stays open, so that its limit is not admitted twice. That can be
-- for up to two periods, but not for longer: a record that ends later is ignored, so
-- it cannot refuse for a very long time. A bound of one period would not do: a clock
-- that is set back a little, right after the start of a window, would open a new one.
-- And a refused request writes nothing, so no record says since when it refuses.
window_end, count = now - now % 1000 + period, 0
if n > 0 and idle_at > now and idle_at <= now + 2 * period then
  window_end, count = idle_at, n
end
window_start = window_end - period
--@ end
--@ if clock
window_start = now - now % period
window_end, count = window_start + period, 0
local next_end = window_end + period
--@ end
--@ if ends
-- If the isolate's clock is days behind, all four ends are in the past. Then
-- windows of `period` are used instead.
local first, second, third, fourth = match(ends, '^(%d+) (%d+) (%d+) (%d+)$')
if first and now < fourth + 0 then
  -- The window before the first end has no known start. `now` is used, so that no
  -- earlier request counts as part of it.
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
--@ if clock
if idle_at == window_end then
  count = n
elseif idle_at == next_end then
  -- The record is of the next window: the clock was set back over a boundary, as in
  -- a failover. That window stays current, because opening the old one again would
  -- admit its limit twice.
  window_start, window_end, count = window_end, next_end, n
end
--@ end

--@ check
if cost > limit then
  retry_after = -1
elseif count + cost > limit then
  retry_after = window_end - now
end

--@ spend
--@ if settled_first_request
-- A settlement before it in the same call can have given back all units. Then this one opens a window.
if count == 0 then
  window_start = now - now % 1000
  window_end = window_start + period
end
--@ end
--@ if settled
-- A count from before the limit was lowered stays, because the limit may rise again.
local most = count > MAX_DEBT * limit and count or MAX_DEBT * limit
--@ end
count = count + cost
--@ if settled
if count > most then
  count = most
end
--@ end

--@ refund
-- Units that were spent in another window are not given back to this one.
if spent_at >= window_start and spent_at < window_end then
  count = count > units and count - units or 0
end

--@ standing
remaining = count < limit and limit - count or 0
--@ if settled
debt = count > limit and count - limit or 0
--@ end
reset_after = count > 0 and window_end - now or 0

--@ write
idle_at, n = window_end, count
