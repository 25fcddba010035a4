-- GCRA, the generic cell rate algorithm. Model: gcra.ts, section by section.
--
-- Admits `rate` units per `period`, evenly spaced, and up to `burst` units at once.
-- Time is counted in ticks of 1 / rate microseconds, so that the spacing is exact
-- even if period / rate is not a whole number of microseconds: a unit adds `period`
-- ticks to the backlog, and each microsecond removes `rate` ticks.
--
-- State: the theoretical arrival time (TAT), at which the backlog will have drained,
-- is n ticks before idle_at.
--@ numbers rate, period, burst
--@ keeps backlog

--@ read
backlog = (idle_at - now) * rate - n
--@ if once
-- If the clock was set back, as in a failover, the backlog can be above the burst,
-- and drains. More than twice the burst cannot be a state of this rule, and is ignored.
if backlog < 0 or backlog > 2 * (burst * period) then
  backlog = 0
end
--@ end
--@ if settled
-- A debt is above the burst, and drains too. Twice the highest one cannot be a state
-- of this rule: the record was written by a clock that was far ahead.
if backlog < 0 or backlog > 2 * MAX_DEBT * (burst * period) then
  backlog = 0
elseif backlog > MAX_DEBT * (burst * period) then
  backlog = MAX_DEBT * (burst * period)
end
if backlog > LONGEST_DEBT * rate then
  backlog = LONGEST_DEBT * rate
end
--@ end

--@ check
local excess = backlog + cost * period - burst * period
if cost > burst then
  retry_after = -1
elseif excess > 0 then
  retry_after = ceil_div(excess, rate)
end

--@ spend
backlog = backlog + cost * period
--@ if settled
if backlog > MAX_DEBT * (burst * period) then
  backlog = MAX_DEBT * (burst * period)
end
if backlog > LONGEST_DEBT * rate then
  backlog = LONGEST_DEBT * rate
end
--@ end

--@ refund
-- Units that have drained since the request are not given back. The units that stay
-- spent are taken to have drained first. If the clock was set back since, it is
-- unknown how much has drained, and nothing is given back.
local drained = (now - spent_at) * rate - (spent - units) * period
local back = units * period - (drained > 0 and drained or 0)
backlog = backlog - (spent_at <= now and back > 0 and back or 0)
if backlog < 0 then
  backlog = 0
end

--@ standing
local room = burst * period - backlog
remaining = room > 0 and floor_div(room, period) or 0
--@ if settled
debt = room < 0 and ceil_div(-room, period) or 0
--@ end
reset_after = ceil_div(backlog, rate)

--@ write
idle_at = ceil_to_ms(now + reset_after)
n = (idle_at - now) * rate - backlog
