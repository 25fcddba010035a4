-- One decision: who calls, and every rule that may apply, all or nothing.
-- The other end of this contract is src/limiter/wire.ts; the records of
-- credentials and consumers are written by src/store/records.ts.
--
--   KEYS     every key that is read or written: when somebody calls, the record
--            of the consumer, then that of the credential, then the pointer that
--            leads to the consumer, as far as ARGV[5] says that they are there;
--            the others hold the state of one identity each, or the log of one
--            rule of one identity; the long logs come last
--   ARGV[1]  now in microseconds, or '' for the clock of this server
--   ARGV[2]  the plans of the config, each with a space around it
--            (' free pro '), the default one first; '' when nobody calls
--   ARGV[3]  when what is given back (a cost below 0) was spent, or ''
--   ARGV[4]  how many of the keys are read as a whole: all but the long logs
--   ARGV[5]  who calls:
--            ''            nobody in particular
--            'key'         KEYS[2] has to be there: the record of the credential
--            'pointer'     the same; in place of the consumer the keys have a
--                          '?', and KEYS[3] says who that is
--            'token' plan  vouched for already, with a plan of its own or ''
--            'failed'      a credential that is known to be bad
--            'lookup'      only asks whom the pointer KEYS[1] leads to
--   ARGV[6]  the family of each rule, three letters each: what the overrides in
--            the record of the consumer are set for ('___': it takes none)
--   ARGV     then FRAME values a rule:
--            index into KEYS of its state, tag, algorithm, limit, period,
--            a third number that is the algorithm's own business,
--            cost (0 peeks, below 0 gives back),
--            callers it is for (' pro ': of these plans, '' all, '!' those whose
--            credential turns out to be bad: for others it is checked, not spent),
--            mode (1: it can refuse, 0: shadow, 2: shadow whatever an override
--            says), or when it gives back how many
--            units were spent, of which the cost is a part
--
--   reply    { status, plan, now, then FIELDS integers a rule, then as many for
--              each rule whose numbers the record of the consumer has overridden }
--            status: 1 admitted, 0 refused, -1 bad credential, -2 blocked (no
--                    rules follow; and none but those for bad credentials can
--                    refuse first). After a pointer, plan is 'plan consumer'
--            a rule: allowed (1, 0, or -1: it does not apply to this caller),
--                    remaining, reset_after, wait (microseconds), where wait is
--                    retry_after (-1: never) when it refuses, and the delay
--                    until departure when it allows (leaky-bucket; else 0)
--            an override: which rule (from 1), limit, burst, mode
--
-- An algorithm is a pure function:
--
--   retry_after, remaining, reset_after,                        as things stand
--   new_remaining, new_reset_after, new_idle_at, new_n, delay,  if it is spent
--   log_bytes, log_offset                                       if it keeps a log
--     = algorithms[name](limit, period, third, cost, idle_at, n, now, spent_at, spent, values)
--
-- Commands: TIME (unless now is given), one MGET, and when admitted one SETEX an
-- identity; a log takes one SETEX, or SETRANGE and EXPIRE, and a long one two or
-- more GETRANGE; a pointer one GET. A refused request writes nothing; one with a
-- bad credential spends the rules for that and no others.

-- The reply has REPLY_HEAD values, then FIELDS a rule.
local REPLY_HEAD, FIELDS = 3, 4

-- A state stays this much longer than it means anything, so that a failover to
-- a slower clock still finds it. It is garbage collection, never meaning: whole
-- seconds do, and even three years of them are an integer to a C of 32 bits, so
-- that '%d' can write them, which is quicker than '%.0f'.
local KEEP_SECONDS = 10

-- No record of ours means anything further ahead than this. The longest time to
-- refill is two years (config/compile-rule.ts), and after a clock set back by as
-- much it is twice that; a day is for what is rounded up.
local HORIZON = (4 * 366 + 1) * 86400e6

if ARGV[5] == 'lookup' then
  local consumer = redis.call('GET', KEYS[1])
  return { consumer and 1 or -1, consumer and ' ' .. consumer or '', 0 }
end

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

local plans, who, families = ARGV[2], ARGV[5], ARGV[6]
local consumer
if who == 'pointer' then
  consumer = redis.call('GET', KEYS[3]) or nil
  for i = 1, consumer and #KEYS or 0 do
    KEYS[i] = gsub(KEYS[i], '{c:%?}', function()
      return '{c:' .. consumer .. '}'
    end)
  end
end
local values = redis.call('MGET', unpack(KEYS, 1, ARGV[4] + 0))

-- Who calls? The plan is that of the credential, else that of the consumer, else
-- the default one, which also stands in for plans that the config does not know.
local plan, is_bad, is_blocked, overridden, changes = '', who == 'failed', nil, nil, nil
if who ~= '' and not is_bad then
  local settings, own_plan = values[1], nil
  if who == 'key' or consumer then
    own_plan = values[2] and match(values[2], '^plan=(%S*)')
  elseif who ~= 'pointer' then
    own_plan = sub(who, 7)
  end
  is_bad = not own_plan
  if own_plan then
    is_blocked = settings and find(settings, 'blocked=', 1, true)
    if is_blocked then
      local ends_at = match(settings, ' until=(%d+)')
      is_blocked = not ends_at or ends_at + 0 > now
    end
    if own_plan == '' then
      own_plan = settings and match(settings, '^plan=(%S+)') or ''
    end
    plan = find(plans, ' ' .. own_plan .. ' ', 1, true) and own_plan or match(plans, '%S+')

    -- The numbers of rules as this consumer has them: what an override leaves empty
    -- stays, and one whose time has passed changes nothing.
    if settings and find(settings, 'override=', 1, true) then
      changes = {}
      local places = {}
      for family, at in gmatch(settings, 'override=(...),()') do
        places[family] = places[family] or at
      end
      overridden = function(number, tag, limit, period, third, cost, mode)
        local at = places[sub(families, number * 3 - 2, number * 3)]
        if not at then
          return tag, limit, period, third, mode
        end
        local ends_at, new_mode, new_tag, new_limit, new_period, new_third, told_limit, told_burst =
          match(settings, '^(%d*),(%-?%d*),(%w*),(%d*),(%d*),(%d*),(%d*),(%d*)', at)
        if not ends_at or (ends_at ~= '' and ends_at + 0 <= now) then
          return tag, limit, period, third, mode
        end
        if new_limit ~= '' then
          tag, limit = new_tag, new_limit
          period = new_period ~= '' and new_period or period
          third = new_third ~= '' and new_third or third
        end
        if cost + 0 >= 0 then
          mode = new_mode ~= '' and mode ~= '2' and new_mode or mode
          local n = #changes
          changes[n + 1], changes[n + 2] = number, tonumber(told_limit) or -1
          changes[n + 3], changes[n + 4] = tonumber(told_burst) or -1, tonumber(mode)
        end
        return tag, limit, period, third, mode
      end
    end
  end
end
local spaced_plan = ' ' .. plan .. ' '

-- Of its full length from the start: a table that grows is copied whenever it doubles.
local reply = { unpack(ARGV, 1, REPLY_HEAD + (#ARGV - HEAD) / FRAME * FIELDS) }
reply[1], reply[2], reply[3] = is_bad and -1 or 1, consumer and plan .. ' ' .. consumer or plan, now

-- Check all. For a rule that would be spent, what would have to be written takes
-- the place of its values in ARGV, as another table of that length costs more than
-- all else here: the key, a number now and no text, the tag, where the state has a
-- record of it (0: nowhere), its place in the reply, and remaining, reset_after,
-- delay, idle_at and n as they would be.
local place, admitted, logs = REPLY_HEAD, true, nil
for i = HEAD + 1, #ARGV, FRAME do
  local key, tag, algorithm, limit, period, third, cost, callers, mode = unpack(ARGV, i, i + FRAME - 1)
  local applies = callers == '!'
  if not applies and not is_bad and not is_blocked then
    applies = callers == '' or find(callers, spaced_plan, 1, true)
  end
  if applies and overridden then
    local number = (place - REPLY_HEAD) / FIELDS + 1
    tag, limit, period, third, mode = overridden(number, tag, limit, period, third, cost, mode)
    ARGV[i + 1] = tag
    applies = mode ~= '-1'
  end
  if applies then
    key, cost = key + 0, cost + 0
    local state = values[key]
    local at = state and locate(state, tag)
    local idle_at, n = 0, 0
    if at then
      idle_at, n = read_record(state, at)
    end
    local retry_after, remaining, reset_after, new_remaining, new_reset_after, new_idle_at, new_n, delay, log_bytes, log_offset =
      algorithms[algorithm](limit + 0, period + 0, third, cost, idle_at, n, now, spent_at, mode, values)
    if retry_after ~= 0 then
      admitted = admitted and mode ~= '1'
    elseif cost ~= 0 and (is_bad or callers ~= '!') then
      ARGV[i], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4] = key, at or 0, place, new_remaining
      ARGV[i + 5], ARGV[i + 6], ARGV[i + 7], ARGV[i + 8] = new_reset_after, delay or 0, new_idle_at, new_n
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

for i = 1, changes and #changes or 0 do
  reply[place + i] = changes[i]
end

-- One refusal means nothing is spent anywhere; the reply says how things stand.
if not admitted then
  reply[1] = 0
  return reply
end
-- Only now, or who has guessed too often would learn that a guess was right.
if is_blocked then
  return { -2, '', now }
end

-- Commit all: the records of each key in one state, which lives as long as the
-- last of them means something.
for key = 1, #KEYS do
  local new_state, idle_at, has_new = '', 0, false
  for i = HEAD + 1, #ARGV, FRAME do
    if ARGV[i] == key then
      local tag, at, place, remaining, reset_after, delay, rule_idle_at, n = unpack(ARGV, i + 1, i + FRAME - 1)
      reply[place + 2], reply[place + 3], reply[place + 4] = remaining, reset_after, delay
      new_state = new_state .. tag .. write_record(rule_idle_at, n)
      idle_at = rule_idle_at > idle_at and rule_idle_at or idle_at
      has_new = has_new or at == 0
    end
  end
  if new_state ~= '' then
    -- Records of rules that are not in this request are kept while they mean
    -- something. This is how rules that left the config disappear.
    local state = values[key]
    if state and #state % RECORD == 0 and (has_new or #state > #new_state) then
      for at = 1, #state, RECORD do
        local other_idle_at = read_record(state, at)
        local is_alive = other_idle_at > now and other_idle_at - now < HORIZON
        if is_alive and not locate(new_state, sub(state, at, at + 2)) then
          new_state = new_state .. sub(state, at, at + RECORD - 1)
          idle_at = other_idle_at > idle_at and other_idle_at or idle_at
        end
      end
    end
    redis.call('SETEX', KEYS[key], format('%d', ceil_div(idle_at - now, 1000000) + KEEP_SECONDS), new_state)
  end
end

for i = 1, logs and #logs or 0 do
  local key, bytes, offset, idle_at = unpack(logs[i], 1, 4)
  local life = format('%d', ceil_div(idle_at - now, 1000000) + KEEP_SECONDS)
  if offset then
    redis.call('SETRANGE', key, offset, bytes)
    redis.call('EXPIRE', key, life)
  else
    redis.call('SETEX', key, life, bytes)
  end
end
return reply
