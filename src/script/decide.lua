-- One decision: the credential, and every rule that may apply, all or nothing.
-- The other end of this contract is src/script/decide.ts; the records of
-- credentials and consumers are written by src/store/records.ts.
--
--   KEYS     every key that is read or written: for a caller with a credential the
--            record of the consumer, then that of the credential, then the pointer
--            that leads to the consumer, as far as ARGV[5] says that they are there;
--            the others hold the state of one identity each, or the log of one
--            rule of one identity; the long logs come last
--   ARGV[1]  verb: 'decide', or 'peek', which says the same and spends nothing
--   ARGV[2]  now in microseconds, or '' for the clock of this server
--   ARGV[3]  the plans of the config, each with a space around it
--            (' free pro '), the default one first; '' for an anonymous caller
--   ARGV[4]  how many of the keys are read as a whole: all but the long logs
--   ARGV[5]  the subject: what the caller's credential is
--            ''         an anonymous caller
--            'key'      KEYS[2] must exist: the record of the credential
--            'pointer'  the same; in the place of the consumer the keys have a
--                       '?', and KEYS[3] holds the consumer
--            'token'    already verified by its signature
--            'failed'   the credential is known to be bad
--   ARGV[6]  the plan that a token claims, or ''
--   ARGV[7]  the family of each rule, three letters each: what the overrides in
--            the record of the consumer are set for ('___': it takes none)
--   ARGV     then FRAME values a rule:
--            index into KEYS of its state, tag, algorithm,
--            three numbers that the file of the algorithm names,
--            role: 'spend' its cost is checked, and spent when all admit;
--                  'guess' its cost is checked, and spent only when the credential
--                          turns out to be bad;
--                  'report' it only reports how things stand,
--            cost, plans it is for (' pro ', '' all),
--            mode (1: it can refuse, 0: shadow, 2: shadow whatever an override says)
--
--   reply    { status, plan, now, then FIELDS integers a rule, then as many for
--              each rule whose numbers the record of the consumer has overridden }
--            status: 1 admitted, 0 refused, -1 bad credential, -2 blocked (no rules
--                    follow; rules of role 'guess' can refuse first).
--                    After a pointer, plan is 'plan consumer'
--            a rule: retry_after (microseconds; 0: it allows, -1: it never will,
--                    -2: it does not apply to this caller), remaining,
--                    reset_after, delay until departure (leaky-bucket; else 0)
--            an override: which rule (from 1), limit, burst, mode
--
-- Commands: TIME (unless now is given), one MGET, and when admitted one SETEX an
-- identity; a log takes one SETEX, or SETRANGE and EXPIRE, and a long one two or
-- more GETRANGE; a pointer one GET. A refused request writes nothing; one with a
-- bad credential spends the rules of role 'guess' and no others.

local HEAD, FRAME = 7, 10
-- The reply has REPLY_HEAD values, then FIELDS a rule.
local REPLY_HEAD, FIELDS = 3, 4

-- Text counts as a number in arithmetic, so `text + 0` is one, and is cheaper
-- than tonumber: there are thirty of them in a decision of six rules.
local verb, now, plans, subject, families = ARGV[1], instant(ARGV[2]), ARGV[3], ARGV[5], ARGV[7]
local consumer
if subject == 'pointer' then
  consumer = redis.call('GET', KEYS[3]) or nil
  for i = 1, consumer and #KEYS or 0 do
    KEYS[i] = gsub(KEYS[i], '{c:%?}', function()
      return '{c:' .. consumer .. '}'
    end)
  end
end
local values = redis.call('MGET', unpack(KEYS, 1, ARGV[4] + 0))

-- The plan is that of the credential, else that of the consumer, else the default
-- one, which also stands in for plans that the config does not know.
local plan, is_bad, is_blocked, override_of, changes = '', subject == 'failed', nil, nil, nil
if subject ~= '' and not is_bad then
  local settings, own_plan = values[1], nil
  if subject == 'token' then
    own_plan = ARGV[6]
  elseif subject == 'key' or consumer then
    own_plan = values[2] and match(values[2], '^plan=(%S*)')
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
    override_of = overrides_in(settings, now)
    changes = override_of and {}
  end
end
local spaced_plan = ' ' .. plan .. ' '

-- Of its full length from the start: a table that grows is copied whenever it doubles.
local reply = { unpack(ARGV, 1, REPLY_HEAD + (#ARGV - HEAD) / FRAME * FIELDS) }
reply[1], reply[2], reply[3] = is_bad and -1 or 1, consumer and plan .. ' ' .. consumer or plan, now

-- Check all. What commit.lua would have to write takes the place of the rule's
-- values in ARGV.
local place, admitted, logs = REPLY_HEAD, true, nil
for i = HEAD + 1, #ARGV, FRAME do
  local key, tag, algorithm, a, b, c, role, cost, callers, mode = unpack(ARGV, i, i + FRAME - 1)
  local is_guess = role == 'guess'
  local applies = is_guess
  if not applies and not is_bad and not is_blocked then
    applies = callers == '' or find(callers, spaced_plan, 1, true)
  end
  if applies and override_of then
    local number = (place - REPLY_HEAD) / FIELDS + 1
    local own_mode, own_tag, own_rate, own_period, own, written_limit, written_burst =
      override_of(sub(families, number * 3 - 2, number * 3))
    if own_mode then
      if own_rate ~= '' then
        tag, a = own_tag, own_rate
        b = own_period ~= '' and own_period or b
        c = own ~= '' and own or c
        ARGV[i + 1] = tag
      end
      mode = own_mode ~= '' and mode ~= '2' and own_mode or mode
      local n = #changes
      changes[n + 1], changes[n + 2] = number, tonumber(written_limit) or -1
      changes[n + 3], changes[n + 4] = tonumber(written_burst) or -1, tonumber(mode)
      applies = mode ~= '-1'
    end
  end
  if applies then
    key, cost = key + 0, cost + 0
    local state = values[key]
    local at = state and locate(state, tag)
    local idle_at, n = 0, 0
    if at then
      idle_at, n = read_record(state, at)
    end
    local is_spent = is_bad or not is_guess
    local retry_after, delay, remaining, reset_after = 0, 0, nil, nil
    local new_remaining, new_reset_after, new_idle_at, new_n, log_bytes, log_offset
    --@ each algorithm
    --@ section read
    if role ~= 'report' then
      --@ section check
      if retry_after == 0 and is_spent then
        --@ section spend
        --@ section write
      end
    end
    --@ end
    if retry_after ~= 0 then
      admitted = admitted and mode ~= '1'
    elseif new_idle_at then
      ARGV[i], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4] = key, at or 0, place, new_remaining
      ARGV[i + 5], ARGV[i + 6], ARGV[i + 7], ARGV[i + 8] = new_reset_after, delay, new_idle_at, new_n
      if log_bytes then
        logs = logs or {}
        logs[#logs + 1] = { KEYS[c + 0], log_bytes, log_offset, new_idle_at }
      end
    end
    reply[place + 1], reply[place + 2], reply[place + 3], reply[place + 4] = retry_after, remaining, reset_after, 0
  else
    reply[place + 1], reply[place + 2], reply[place + 3], reply[place + 4] = -2, 0, 0, 0
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
-- Only now: a caller that has guessed too often must not learn that a guess was right.
if is_blocked then
  return { -2, '', now }
end
if verb == 'peek' then
  return reply
end
--@ include script/commit.lua
