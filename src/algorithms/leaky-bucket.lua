-- Leaky bucket as a queue. Model: leaky-bucket.ts, section by section.
--
-- Requests depart evenly, `rate` units per `period`. The bucket holds at most
-- `burst` units, including the one that departs. An admitted request is delayed
-- until the units before it have leaked out. Time is counted in ticks as in
-- gcra.lua, so that departures never drift.
--
-- A request can say how long it would wait. It does not join if its turn would come
-- later.
--
-- State: the bucket is empty n ticks before idle_at.
--@ numbers rate, period, burst, wait
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
--@ if waits
-- The longest wait in microseconds; '': any.
if wait ~= '' and content - wait * rate > excess then
  excess = content - wait * rate
end
--@ end
if cost > burst then
  retry_after = -1
elseif excess > 0 then
  retry_after = ceil_div(excess, rate)
end

--@ spend
delay = ceil_div(content, rate)
content = content + cost * period

--@ refund
-- A place is given back only if it is the last one. The departures of the requests
-- behind another place are fixed, so a new request would depart together with the last
-- of them. With each place, the instant at which the bucket is empty moves by at least
-- one unit. So the place is the last one if the bucket is empty at its end. `wait`: how
-- long the request had to wait for its turn, rounded up to microseconds.
--@ if waits
if wait ~= '' then
  local behind = content - (wait * rate + spent * period - (now - spent_at) * rate)
  if behind <= 0 and behind > -rate then
    content = content - units * period
    if content < 0 then
      content = 0
    end
  end
end
--@ end

--@ standing
local room = burst * period - content
remaining = room > 0 and floor_div(room, period) or 0
reset_after = ceil_div(content, rate)

--@ write
idle_at = ceil_to_ms(now + reset_after)
n = (idle_at - now) * rate - content
