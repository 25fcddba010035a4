-- One decision: the credential and every rule that may apply, all or nothing.
-- The other end of this contract is src/limiter/wire.ts.
--
--   KEYS     every key that is read or written. KEYS[1] is the credential's
--            record when ARGV[2] is not empty; the others hold the state of one
--            identity each
--   ARGV[1]  now in microseconds, or '' for the clock of this server
--   ARGV[2]  '' for an anonymous caller; else the plans of the config, each with
--            a space around it (' free pro '), the default one first
--   ARGV     then FRAME values a rule:
--            index into KEYS, tag, algorithm, limit, period, burst, cost,
--            plans it is for (' pro ', or '' for every caller)
--
--   reply    { status, plan, then FIELDS integers a rule }
--            status: 1 admitted, 0 refused, -1 no such credential (no rules follow)
--            a rule: allowed (1, 0, or -1: it does not apply to this plan),
--                    remaining, reset_after, retry_after
--            (microseconds; retry_after 0: now, -1: never)
--
-- Commands: TIME (unless now is given), one MGET, and one SET an identity when
-- admitted. A refused request writes nothing.

local FRAME = 8

-- A state stays this much longer than it means anything, so that a failover to
-- a slower clock still finds it. It is garbage collection, never meaning.
local KEEP_MS = 10000

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local values = redis.call('MGET', unpack(KEYS))

-- Who calls? A plan that the config does not know counts as the default plan.
local plan = ''
local known_plans = ARGV[2]
if known_plans ~= '' then
  plan = values[1] and match(values[1], '^plan=(%S+)')
  if not plan then
    return { -1, '' }
  end
  if not find(known_plans, ' ' .. plan .. ' ', 1, true) then
    plan = match(known_plans, '%S+')
  end
end

-- Check all.
local rules, states, admitted = {}, {}, true
for i = 3, #ARGV, FRAME do
  local rule = {
    key = tonumber(ARGV[i]),
    tag = ARGV[i + 1],
    algorithm = algorithms[ARGV[i + 2]],
    limit = tonumber(ARGV[i + 3]),
    period = tonumber(ARGV[i + 4]),
    burst = tonumber(ARGV[i + 5]),
    cost = tonumber(ARGV[i + 6]),
  }
  local plans = ARGV[i + 7]
  rule.applies = plans == '' or find(plans, ' ' .. plan .. ' ', 1, true) ~= nil
  if rule.applies then
    states[rule.key] = states[rule.key] or read_state(values[rule.key])
    rule.retry_after, rule.next_state =
      rule.algorithm.check(rule, states[rule.key][rule.tag], now)
    admitted = admitted and rule.retry_after == 0
  end
  rules[#rules + 1] = rule
end

-- Commit all, or nothing.
if admitted then
  local spent = {}
  for _, rule in ipairs(rules) do
    if rule.applies and rule.cost > 0 then
      states[rule.key][rule.tag] = rule.next_state
      spent[rule.key] = true
    end
  end
  for key in pairs(spent) do
    local value, idle_at = write_state(states[key], now)
    local keep_ms = ceil_div(idle_at - now, 1000) + KEEP_MS
    redis.call('SET', KEYS[key], value, 'PX', integer(keep_ms))
  end
end

-- Report each rule as it stands now.
local reply = { admitted and 1 or 0, plan }
for _, rule in ipairs(rules) do
  local n = #reply
  if rule.applies then
    reply[n + 1] = rule.retry_after == 0 and 1 or 0
    reply[n + 2], reply[n + 3] = rule.algorithm.peek(rule, states[rule.key][rule.tag], now)
    reply[n + 4] = rule.retry_after
  else
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = -1, 0, 0, 0
  end
end
return reply
