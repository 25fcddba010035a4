-- Gives back what one request has spent, or parts of it. The other end of this
-- contract is src/script/refund.ts.
--
--   KEYS     the record of the consumer if ARGV[4] is 'consumer'; then states and
--            logs as in decide.lua
--   ARGV[1]  now in microseconds, or '' for the clock of this server
--   ARGV[2]  when the request was admitted, by the clock of this server
--   ARGV[3]  how many of the keys are read as a whole: all but the long logs
--   ARGV[4]  'consumer' where the rules are counted for a consumer, whose overrides
--            then apply; else ''
--   ARGV     then FRAME values a rule:
--            index into KEYS of its state, tag, algorithm,
--            three numbers that the file of the algorithm names,
--            units to give back (0: it only reports how things stand),
--            units of that request that are still spent, family
--
--   reply    { now, then FIELDS integers a rule: 0, remaining, reset_after, 0 }

local HEAD, FRAME = 4, 9
local REPLY_HEAD, FIELDS = 1, 4

local now, spent_at = instant(ARGV[1]), ARGV[2] + 0
local values = redis.call('MGET', unpack(KEYS, 1, ARGV[3] + 0))
local override_of = ARGV[4] == 'consumer' and overrides_in(values[1], now)

local reply, place, logs = { now }, REPLY_HEAD, nil
for i = HEAD + 1, #ARGV, FRAME do
  local key, tag, algorithm, a, b, c, units, spent, family = unpack(ARGV, i, i + FRAME - 1)
  if override_of then
    local own_mode, own_tag, own_rate, own_period, own = override_of(family)
    if own_mode and own_rate ~= '' then
      tag, a = own_tag, own_rate
      b = own_period ~= '' and own_period or b
      c = own ~= '' and own or c
      ARGV[i + 1] = tag
    end
  end
  key, units, spent = key + 0, units + 0, spent + 0
  local state = values[key]
  local at = state and locate(state, tag)
  local idle_at, n = 0, 0
  if at then
    idle_at, n = read_record(state, at)
  end
  local delay, remaining, reset_after = 0, nil, nil
  local new_remaining, new_reset_after, new_idle_at, new_n, log_bytes, log_offset
  --@ each algorithm
  --@ section read
  if units > 0 then
    --@ section refund
    --@ section write
  end
  --@ end
  if new_idle_at then
    ARGV[i], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4] = key, at or 0, place, new_remaining
    ARGV[i + 5], ARGV[i + 6], ARGV[i + 7], ARGV[i + 8] = new_reset_after, delay, new_idle_at, new_n
    if log_bytes then
      logs = logs or {}
      logs[#logs + 1] = { KEYS[c + 0], log_bytes, log_offset, new_idle_at }
    end
  end
  reply[place + 1], reply[place + 2], reply[place + 3], reply[place + 4] = 0, remaining, reset_after, 0
  place = place + FIELDS
end
--@ include script/commit.lua
