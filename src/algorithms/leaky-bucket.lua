-- Leaky bucket as a queue. Model: leaky-bucket.ts, section by section.
--
-- Requests depart evenly, `rate` units per `period`. The bucket holds at most
-- `burst` units, including the one that departs. An admitted request is delayed
-- until the units before it have leaked out. Time is counted in ticks as in
-- gcra.lua, so that departures never drift.
--
-- State: the bucket is empty n ticks before idle_at.
--@ numbers rate, period, burst
--@ keeps content

--@ read
content = (idle_at - now) * rate - n
-- If the clock was set back, as in a failover, the content can be above `burst`. It
-- then leaks out as usual. A content above twice the burst cannot come from this rule,
-- and counts as empty.
if content < 0 or content > 2 * (burst * period) then
  content = 0
end

--@ check
local excess = content + cost * period - burst * period
if cost > burst then
  retry_after = -1
elseif excess > 0 then
  retry_after = ceil_div(excess, rate)
end

--@ spend
delay = ceil_div(content, rate)
content = content + cost * period

--@ refund
-- A place in the queue is not given back: the departures of the requests behind it
-- are fixed, so a new request would depart together with the last of them.

--@ standing
local room = burst * period - content
remaining = room > 0 and floor_div(room, period) or 0
reset_after = ceil_div(content, rate)

--@ write
idle_at = ceil_to_ms(now + reset_after)
n = (idle_at - now) * rate - content
