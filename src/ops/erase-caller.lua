-- ARGV: the two names of the consumer; whether to erase it, or to count only. Its refusals are no longer part of the sums then.
local found = 0
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  local isFound = false
  local kept = string.gsub(fields[i + 1], '(%S+) %d+ %d+ %d+ %S+ ?', function(name)
    for value in string.gmatch(name, '=([^,]*)') do
      if value == ARGV[1] then name = value end
    end
    -- Without a value, the text stays.
    if name ~= ARGV[1] and name ~= ARGV[2] then return end
    isFound = true
    return ''
  end)
  if isFound then
    found = found + 1
    if ARGV[3] == 'erase' then
      if kept == '' then
        redis.call('HDEL', KEYS[1], fields[i])
      else
        redis.call('HSET', KEYS[1], fields[i], kept)
      end
    end
  end
end
return found
