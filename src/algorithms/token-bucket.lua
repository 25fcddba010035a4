-- Token bucket. Model: token-bucket.ts, section by section.
--
-- A bucket of `burst` tokens, refilled continuously at `rate` tokens per `period`.
-- A request takes as many tokens as it costs. The level is counted in ticks: a token
-- is `period` ticks, and each microsecond adds `rate` ticks, so no rate loses anything
-- to rounding.
--
-- State: the bucket is full n ticks before idle_at.
--@ numbers rate, period, burst
--@ keeps level

--@ read
level = burst * period - ((idle_at - now) * rate - n)
-- If the clock was set back, as in a failover, the level can be below empty, and
-- refills. More than a whole bucket below empty cannot be a state of this rule, and
-- is ignored.
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
-- Units that have been refilled since the request are not given back. The units that
-- stay spent are taken to have been refilled first. If the clock was set back since,
-- it is unknown how much was refilled, and nothing is given back.
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
