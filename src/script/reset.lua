-- Makes the whole budget of rules available again, by removing their records.
-- src/script/reset.ts encodes the arguments and decodes the reply.
--
--   KEYS     the state of each identity; then the side keys of the rules (logs, holders, reservations)
--   ARGV[1]  how many of the keys are states
--   ARGV[2]  now in microseconds, or '' for the clock of this server
--   ARGV     then two values for each rule: index of its state in KEYS, tag; and again with the tag '*' if it
--            reserves: removes the reservations in the state
--
--   reply    { now }

local states = ARGV[1] + 0
for key = 1, states do
  local is_reset = {}
  for i = 3, #ARGV, 2 do
    if ARGV[i] + 0 == key then
      is_reset[ARGV[i + 1]] = true
    end
  end
  -- MGET and not GET, because MGET treats a key of another type as missing.
  local state = redis.call('MGET', KEYS[key])[1]
  if state then
    local kept, idle_at = '', now
    for at = 1, #state % 14 == 0 and #state or 0, 14 do
      local a, b = unpack_integers('>I4I4', state, at + 3)
      local other_idle_at = (4398046511103 - a * 1024 - (b - b % 4194304) / 4194304) * 1000
      local first = string.byte(state, at)
      -- A reservation has two records or more, and only the first one has an instant (src/script/reserved-records.ts).
      local tag = first < 128 and string.sub(state, at, at + 2) or '*'
      if (other_idle_at > now or tag == '*') and other_idle_at - now < HORIZON and not is_reset[tag] then
        kept = kept .. string.sub(state, at, at + 13)
        idle_at = first < 160 and other_idle_at > idle_at and other_idle_at or idle_at
      end
    end
    if kept == '' then
      redis.call('DEL', KEYS[key])
    else
      local life = life_until(idle_at)
      redis.call('SETEX', KEYS[key], string.format('%d', spread(life)), kept)
    end
  end
end
for key = states + 1, #KEYS do
  redis.call('DEL', KEYS[key])
end
return { now }
