-- Pauses an identity of a limit by name, or ends its pause. src/script/pause.ts encodes the arguments and decodes the reply.
--
-- The pause is a record in the state of the identity (prelude.lua), whose tag no rule can have. So each decision reads it with the
-- counters, and a state without a pause is read as before. Its idle_at is the end of the pause.
--
--   KEYS     the state of the identity
--   ARGV[1]  how long to pause in microseconds, or 0 to end the pause
--   ARGV[2]  now in microseconds, or '' for the clock of this server
--   then the stream and the values of an entry of the audit trail (audit.lua), which is written if the pause begins, ends, or becomes
--   longer by at least a second: many processes can pause for the same reason
--
--   reply    { now, the end of the pause in microseconds, or 0 }

local state = redis.call('MGET', KEYS[1])[1]
local kept, reserved, idle_at, before, ends = '', '', now, 0, ARGV[1] + 0
for at = 1, state and #state % 14 == 0 and #state or 0, 14 do
  local a, b = unpack_integers('>I4I4', state, at + 3)
  local other_idle_at = (4398046511103 - a * 1024 - (b - b % 4194304) / 4194304) * 1000
  local first, record = string.byte(state, at), string.sub(state, at, at + 13)
  if other_idle_at - now >= HORIZON then
    -- Text from another program.
  elseif first >= 128 then
    -- A reservation stays, and follows all other records. Only its first record has an instant (src/script/reserved-records.ts).
    reserved = reserved .. record
    idle_at = first < 160 and other_idle_at > idle_at and other_idle_at or idle_at
  elseif other_idle_at > now then
    if string.sub(record, 1, 3) == PAUSE then
      before = other_idle_at
    else
      kept = kept .. record
      idle_at = math.max(idle_at, other_idle_at)
    end
  end
end
if ends > 0 then
  ends = math.max(before, ceil_to_ms(now + ends))
end
if ends ~= before then
  -- Only SETEX changes the state, also in place of DEL. Before the entry, it is written as it was: if Redis refuses that, there is no entry.
  local life = life_until(math.max(idle_at, before))
  redis.call('SETEX', KEYS[1], string.format('%d', state and spread(life) or 1), state or '')
  if before == 0 or ends == 0 or ends - before >= 1000000 then
    audit()
  end
  if ends > 0 then
    local b = (4398046511103 - ends / 1000) % 1024
    local a = (4398046511103 - ends / 1000 - b) / 1024
    kept = kept .. PAUSE .. pack_integers('>I4I4I3', a, b * 4194304, 0)
    idle_at = math.max(idle_at, ends)
  end
  kept = kept .. reserved
  life = life_until(idle_at)
  redis.call('SETEX', KEYS[1], string.format('%d', kept ~= '' and spread(life) or 1), kept)
end
return { now, ends }
