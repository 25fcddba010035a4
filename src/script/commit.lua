-- Commit all: the records of each key in one state, which lives as long as the last
-- of them means something. The script that includes this has prepared each rule
-- that is to be written, in its frame of ARGV:
--
--   ARGV[i]      index into KEYS, a number (text where nothing is to be written)
--   ARGV[i + 1]  tag
--   ARGV[i + 2]  where the state has a record of it; 0: nowhere
--   ARGV[i + 3]  its place in the reply
--   ARGV[i + 4]  remaining, reset_after, delay, idle_at and n, once it is written
--
-- and `logs`: nil, or a list of { key, bytes, offset, idle_at }. The frame is reused
-- because another table of that length would cost more than everything else here.
for key = 1, #KEYS do
  local new_state, idle_at, has_new = '', 0, false
  for i = HEAD + 1, #ARGV, FRAME do
    if ARGV[i] == key then
      local tag, at, place, remaining, reset_after, delay, rule_idle_at, n = unpack(ARGV, i + 1, i + 8)
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
    redis.call('SETEX', KEYS[key], life_of(idle_at, now), new_state)
  end
end

for i = 1, logs and #logs or 0 do
  local key, bytes, offset, idle_at = unpack(logs[i], 1, 4)
  if offset then
    redis.call('SETRANGE', key, offset, bytes)
    redis.call('EXPIRE', key, life_of(idle_at, now))
  else
    redis.call('SETEX', key, life_of(idle_at, now), bytes)
  end
end
return reply
