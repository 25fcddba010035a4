-- Makes the whole budget of rules available again, by removing their records.
-- src/script/reset.ts encodes the arguments and decodes the reply.
--
--   KEYS     the state of each identity; then the side keys of the rules (logs, holders, reservations)
--            then the overrides of each identity that can have some
--   ARGV[1]  how many of the keys are states, and how many come before the overrides, if there are any: `1 3`
--   ARGV[2]  now in microseconds, or '' for the clock of this server
--   ARGV     then two values for each rule: index of its state in KEYS, tag; and again with the tag '*' if it
--            reserves: removes the reservations in the state; and again with `<index of the overrides in KEYS> =<family>,` if it
--            can have an override, whose record is another one
--
--   reply    { now }

local states, last = string.match(ARGV[1], '(%d+) ?(%d*)')
states, last = states + 0, last == '' and #KEYS or last + 0
local written = {}
-- Overrides are as in the record of a consumer (src/store/records.ts).
local function tag_under_override(text)
  local record, family = string.match(text, '^(%d+) (.*)')
  local overrides = redis.call('MGET', KEYS[record + 0])[1] or ''
  local _, at = string.find(overrides, family, 1, true)
  return at and string.match(overrides, '^%d*,%-?%d*,(%w*)', at + 1) or text
end
local function write(key, bytes, idle_at)
  local life = life_until(idle_at)
  redis.call('SETEX', KEYS[key], string.format('%d', spread(life)), bytes)
end
for key = 1, states do
  local is_reset = {}
  for i = 3, #ARGV, 2 do
    if ARGV[i] + 0 == key then
      local tag = ARGV[i + 1]
      is_reset[#tag > 3 and tag_under_override(tag) or tag] = true
    end
  end
  -- MGET and not GET, because MGET treats a key of another type as missing.
  local state = redis.call('MGET', KEYS[key])[1]
  if state then
    local kept, idle_at, latest = '', now, now
    for at = 1, #state % 14 == 0 and #state or 0, 14 do
      local a, b = unpack_integers('>I4I4', state, at + 3)
      local other_idle_at = (4398046511103 - a * 1024 - (b - b % 4194304) / 4194304) * 1000
      local first = string.byte(state, at)
      -- A reservation has two records or more, and only the first one has an instant (src/script/reserved-records.ts).
      local tag = first < 128 and string.sub(state, at, at + 2) or '*'
      local is_instant = first < 160 and other_idle_at - now < HORIZON
      latest = is_instant and other_idle_at > latest and other_idle_at or latest
      if (other_idle_at > now or tag == '*') and other_idle_at - now < HORIZON and not is_reset[tag] then
        kept = kept .. string.sub(state, at, at + 13)
        idle_at = first < 160 and other_idle_at > idle_at and other_idle_at or idle_at
      end
    end
    written[#written + 1] = { key = key, before = state, latest = latest, kept = kept, idle_at = idle_at }
  end
end
-- Before anything is removed, states are written as they were: if Redis refuses that, or DEL, nothing is reset.
for _, each in ipairs(written) do
  if each.kept ~= '' then
    write(each.key, each.before, each.latest)
  end
end
for key = states + 1, last do
  redis.call('DEL', KEYS[key])
end
for _, each in ipairs(written) do
  if each.kept == '' then
    redis.call('DEL', KEYS[each.key])
  else
    write(each.key, each.kept, each.idle_at)
  end
end
return { now }
