-- GCRA, the generic cell rate algorithm. Model: gcra.ts, section by section.
--
-- `rate` per `period` evenly spaced, `burst` of them at once. To space cells
-- exactly where period / rate is not a whole number of microseconds, time is
-- counted in ticks of 1 / rate microseconds: a unit of cost takes `period`
-- ticks, and a microsecond gives back `rate` of them.
--
-- State: the theoretical arrival time (TAT), the instant at which the backlog
-- will have drained, is n ticks before idle_at.
--@ numbers rate, period, burst
--@ keeps backlog

--@ read
backlog = (idle_at - now) * rate - n
-- A backlog slightly above the burst comes from a clock that was set back (a
-- failover), and drains. Twice the burst is not a state of this rule.
if backlog < 0 or backlog > 2 * (burst * period) then
  backlog = 0
end

--@ check
local excess = backlog + cost * period - burst * period
if cost > burst then
  retry_after = -1
elseif excess > 0 then
  retry_after = ceil_div(excess, rate)
end

--@ spend
backlog = backlog + cost * period

--@ refund
-- What has drained since the request is not given back, except for the part of it
-- that stays spent, which drained first. After a clock set back it is unknown how
-- much has drained, and nothing is given back.
local drained = (now - spent_at) * rate - (spent - units) * period
local back = units * period - (drained > 0 and drained or 0)
backlog = backlog - (spent_at <= now and back > 0 and back or 0)
if backlog < 0 then
  backlog = 0
end

--@ standing
local room = burst * period - backlog
remaining = room > 0 and floor_div(room, period) or 0
reset_after = ceil_div(backlog, rate)

--@ write
idle_at = ceil_to_ms(now + reset_after)
n = (idle_at - now) * rate - backlog
