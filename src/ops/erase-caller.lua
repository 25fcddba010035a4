-- ARGV: the two names of the consumer; whether to erase it, or to count only. Its refusals are no longer part of the sums then.
local found = 0
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  local kept, isFound = {}, false
  for name, rest in string.gmatch(fields[i + 1], '(%S+) (%d+ %d+ %d+ %S+)') do
    local isOwn = name == ARGV[1] or name == ARGV[2]
    for value in string.gmatch(name, '=([^,]*)') do isOwn = isOwn or value == ARGV[1] end
    if isOwn then
      isFound = true
    else
      kept[#kept + 1] = name .. ' ' .. rest
    end
  end
  if isFound then found = found + 1 end
  if isFound and ARGV[3] == 'erase' then
    if #kept == 0 then
      redis.call('HDEL', KEYS[1], fields[i])
    else
      redis.call('HSET', KEYS[1], fields[i], table.concat(kept, ' '))
    end
  end
end
return found
