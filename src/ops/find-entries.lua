-- KEYS: a stream. ARGV: the last id, the first id, how many to look at, how many to find, the target, the kind of action, what the change of a rotation to
-- the target has.
-- Reply: the entries, and where to go on; an empty text after the last one.
local looked = redis.call('XREVRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])
local found = {}
for i = 1, #looked do
  local values = looked[i][2]
  -- Anyone who can write to the store can write other entries. They must not hide these.
  local action, target, change = values[6] or '', values[8] or '', values[10] or ''
  if (ARGV[5] == '' or target == ARGV[5] or string.sub(target, 1, #ARGV[5] + 1) == ARGV[5] .. '/'
      or string.find(change, ARGV[7], 1, true))
      and string.sub(action, 1, #ARGV[6]) == ARGV[6] then
    found[#found + 1] = looked[i]
    if #found == ARGV[4] + 0 then return { found, looked[i][1] } end
  end
end
return { found, #looked == ARGV[3] + 0 and looked[#looked][1] or '' }
