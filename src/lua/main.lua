-- One decision: the credential and every rule that may apply, all or nothing.
-- The other end of this contract is src/limiter/wire.ts.
--
--   KEYS     every key that is read or written. KEYS[1] is the credential's
--            record when ARGV[2] is not empty; the others hold the state of one
--            identity each, or the log of one rule of one identity
--   ARGV[1]  now in microseconds, or '' for the clock of this server
--   ARGV[2]  '' for an anonymous caller; else the plans of the config, each with
--            a space around it (' free pro '), the default one first
--   ARGV[3]  when what is given back (a cost below 0) was spent, or ''
--   ARGV     then FRAME values a rule:
--            index into KEYS of its state, tag, algorithm, limit, period,
--            a third number that is the algorithm's own business,
--            cost (0 peeks, below 0 gives back),
--            plans it is for (' pro ', or '' for every caller),
--            mode (1: it can refuse, 0: shadow)
--
--   reply    { status, plan, now, then FIELDS integers a rule }
--            status: 1 admitted, 0 refused, -1 no such credential (no rules follow)
--            a rule: allowed (1, 0, or -1: it does not apply to this plan),
--                    remaining, reset_after, wait (microseconds), where wait is
--                    retry_after (-1: never) when it refuses, and the delay
--                    until departure when it allows (leaky-bucket; else 0)
--
-- An algorithm is a pure function:
--
--   retry_after, remaining, reset_after,                        as things stand
--   new_remaining, new_reset_after, new_idle_at, new_n, delay,  if it is spent
--   log_bytes, log_offset                                       if it keeps a log
--     = algorithms[name](limit, period, third, cost, idle_at, n, now, spent_at, values)
--
-- Commands: TIME (unless now is given), one MGET, and when admitted one SET an
-- identity; a log takes one SET, or SETRANGE and PEXPIRE. A refused request
-- writes nothing.

local FIELDS = 4

-- A state stays this much longer than it means anything, so that a failover to
-- a slower clock still finds it. It is garbage collection, never meaning.
local KEEP_MS = 10000

-- No record of ours reaches further ahead than this: three years. The longest
-- period is one, and the longest time to refill two (config/compile.ts).
local HORIZON = 3 * 366 * 86400e6

-- Text counts as a number in arithmetic, so `text + 0` is one, and is cheaper
-- than tonumber: there are thirty of them in a decision of six rules.
local now, spent_at = ARGV[1], ARGV[3]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now + 0
end
spent_at = spent_at ~= '' and spent_at + 0 or nil

local values = redis.call('MGET', unpack(KEYS))

-- Who calls? A plan that the config does not know counts as the default plan.
local plan, known_plans = '', ARGV[2]
if known_plans ~= '' then
  plan = values[1] and match(values[1], '^plan=(%S+)')
  if not plan then
    return { -1, '', now }
  end
  if not find(known_plans, ' ' .. plan .. ' ', 1, true) then
    plan = match(known_plans, '%S+')
  end
end

-- Check all. What would have to be written is put down in `spending`, SPEND
-- values a rule: its place in the reply, key, tag, whether the state has a record
-- of it, then remaining, reset_after, delay, idle_at and n as they would be.
local SPEND = 9
local reply, spending, logs, admitted = { 1, plan, now }, {}, nil, true
local place, spent = 3, 0
for i = HEAD + 1, #ARGV, FRAME do
  local key, tag, algorithm, limit, period, third, cost, plans, mode = unpack(ARGV, i, i + FRAME - 1)
  if plans == '' or find(plans, ' ' .. plan .. ' ', 1, true) then
    key, cost = key + 0, cost + 0
    local state = values[key]
    local at = state and locate(state, tag)
    local idle_at, n = 0, 0
    if at then
      idle_at, n = read_record(state, at)
    end
    local retry_after, remaining, reset_after, new_remaining, new_reset_after, new_idle_at, new_n, delay, log_bytes, log_offset =
      algorithms[algorithm](limit + 0, period + 0, third, cost, idle_at, n, now, spent_at, values)
    if retry_after ~= 0 then
      admitted = admitted and mode == '0'
    elseif cost ~= 0 then
      spending[spent + 1], spending[spent + 2], spending[spent + 3] = place, key, tag
      spending[spent + 4], spending[spent + 5], spending[spent + 6] = at and 1 or 0, new_remaining, new_reset_after
      spending[spent + 7], spending[spent + 8], spending[spent + 9] = delay or 0, new_idle_at, new_n
      spent = spent + SPEND
      if log_bytes then
        logs = logs or {}
        logs[#logs + 1] = { KEYS[third + 0], log_bytes, log_offset, new_idle_at }
      end
    end
    reply[place + 1] = retry_after == 0 and 1 or 0
    reply[place + 2], reply[place + 3], reply[place + 4] = remaining, reset_after, retry_after
  else
    reply[place + 1], reply[place + 2], reply[place + 3], reply[place + 4] = -1, 0, 0, 0
  end
  place = place + FIELDS
end

-- One refusal means nothing is spent anywhere; the reply says how things stand.
if not admitted then
  reply[1] = 0
  return reply
end

-- Commit all: the new state of each key, and the instant it reads as idle.
local new_states, idle_ats, replaced = {}, {}, {}
for i = 1, spent, SPEND do
  local at, key, tag, is_known, remaining, reset_after, delay, idle_at, n = unpack(spending, i, i + SPEND - 1)
  reply[at + 2], reply[at + 3], reply[at + 4] = remaining, reset_after, delay
  new_states[key] = (new_states[key] or '') .. tag .. write_record(idle_at, n)
  idle_ats[key] = idle_ats[key] and idle_ats[key] > idle_at and idle_ats[key] or idle_at
  replaced[key] = (replaced[key] or 0) + is_known
end

for key, new_state in pairs(new_states) do
  local state, idle_at = values[key], idle_ats[key]
  -- Records of rules that are not in this request are kept while they mean
  -- something. This is how rules that left the config disappear.
  if state and #state % RECORD == 0 and #state > replaced[key] * RECORD then
    for at = 1, #state, RECORD do
      local other_idle_at = read_record(state, at)
      local is_alive = other_idle_at > now and other_idle_at - now < HORIZON
      if is_alive and not locate(new_state, sub(state, at, at + 2)) then
        new_state = new_state .. sub(state, at, at + RECORD - 1)
        idle_at = other_idle_at > idle_at and other_idle_at or idle_at
      end
    end
  end
  -- Formatted by ourselves: the conversion inside redis.call keeps 14 digits.
  redis.call('SET', KEYS[key], new_state, 'PX', format('%.0f', ceil_div(idle_at - now, 1000) + KEEP_MS))
end

for i = 1, logs and #logs or 0 do
  local key, bytes, offset, idle_at = unpack(logs[i], 1, 4)
  local life = format('%.0f', ceil_div(idle_at - now, 1000) + KEEP_MS)
  if offset then
    redis.call('SETRANGE', key, offset, bytes)
    redis.call('PEXPIRE', key, life)
  else
    redis.call('SET', key, bytes, 'PX', life)
  end
end
return reply
