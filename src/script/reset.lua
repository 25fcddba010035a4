-- Makes the whole budget of rules available again, by removing their records. The
-- other end of this contract is src/script/reset.ts.
--
--   KEYS     states, one for each identity; then the logs of the rules
--   ARGV[1]  now in microseconds, or '' for the clock of this server
--   ARGV[2]  how many of the keys are states
--   ARGV     then two values a rule: index into KEYS of its state, tag
--
--   reply    { now }

local now, states = instant(ARGV[1]), ARGV[2] + 0
for key = 1, states do
  local is_reset = {}
  for i = 3, #ARGV, 2 do
    if ARGV[i] + 0 == key then
      is_reset[ARGV[i + 1]] = true
    end
  end
  -- MGET, which reads a key of another type as missing.
  local state = redis.call('MGET', KEYS[key])[1]
  if state then
    local new_state, idle_at = '', 0
    for at = 1, #state % RECORD == 0 and #state or 0, RECORD do
      local other_idle_at = read_record(state, at)
      local is_alive = other_idle_at > now and other_idle_at - now < HORIZON
      if is_alive and not is_reset[sub(state, at, at + 2)] then
        new_state = new_state .. sub(state, at, at + RECORD - 1)
        idle_at = other_idle_at > idle_at and other_idle_at or idle_at
      end
    end
    if new_state == '' then
      redis.call('DEL', KEYS[key])
    else
      redis.call('SETEX', KEYS[key], life_of(idle_at, now), new_state)
    end
  end
end
for key = states + 1, #KEYS do
  redis.call('DEL', KEYS[key])
end
return { now }
