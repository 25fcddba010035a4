-- Leaky bucket as a queue. Model: leaky-bucket.ts, section by section.
--
-- Requests depart evenly, `rate` per `period`; up to `burst` units are in the
-- bucket at a time, the one that departs included. The delay of an admitted
-- request is the time until what came before it has leaked out. Counted in ticks
-- as in gcra.lua, so that departures never drift.
--
-- State: the bucket is empty n ticks before idle_at.
--@ numbers rate, period, burst
--@ keeps content

--@ read
content = (idle_at - now) * rate - n
-- A content slightly above full comes from a clock that was set back (a failover),
-- and leaks out. Twice as much is not a state of this rule.
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
-- are fixed, and a newcomer would depart together with the last of them.

--@ standing
local room = burst * period - content
remaining = room > 0 and floor_div(room, period) or 0
reset_after = ceil_div(content, rate)

--@ write
idle_at = ceil_to_ms(now + reset_after)
n = (idle_at - now) * rate - content
