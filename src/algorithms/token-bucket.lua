-- Token bucket. Model: token-bucket.ts, section by section.
--
-- A bucket of `burst` tokens, refilled continuously at `rate` tokens per
-- `period`; a request takes as many as it costs. The level is counted in ticks:
-- a token is `period` of them, and a microsecond brings `rate`, so that nothing
-- is lost to rounding at any rate.
--
-- State: the bucket is full n ticks before idle_at.
--@ numbers rate, period, burst
--@ keeps level

--@ read
level = burst * period - ((idle_at - now) * rate - n)
-- A level slightly below empty comes from a clock that was set back (a failover),
-- and refills. A whole bucket below empty is not a state of this rule.
if level > burst * period or level < -(burst * period) then
  level = burst * period
end

--@ check
local missing = cost * period - level
if cost > burst then
  retry_after = -1
elseif missing > 0 then
  retry_after = ceil_div(missing, rate)
end

--@ spend
level = level - cost * period

--@ refund
-- What has been refilled since the request is not given back, except for the part
-- of it that stays spent, which came back first. After a clock set back it is
-- unknown how much was refilled, and nothing is given back.
local refilled = (now - spent_at) * rate - (spent - units) * period
local back = units * period - (refilled > 0 and refilled or 0)
level = level + (spent_at <= now and back > 0 and back or 0)
if level > burst * period then
  level = burst * period
end

--@ standing
local missing = burst * period - level
remaining = level > 0 and floor_div(level, period) or 0
reset_after = ceil_div(missing, rate)

--@ write
idle_at = ceil_to_ms(now + reset_after)
n = (idle_at - now) * rate - (burst * period - level)
