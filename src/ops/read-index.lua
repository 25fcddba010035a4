-- KEYS: the set, the sorted set. ARGV: the text to begin at; how many. Reply: the member before them, or an empty text; then the members.
if redis.call('SCARD', KEYS[1]) ~= redis.call('ZCARD', KEYS[2]) then
  redis.call('DEL', KEYS[2])
  local all = redis.call('SMEMBERS', KEYS[1])
  for from = 1, #all, 1000 do
    local some = {}
    for i = from, math.min(from + 999, #all) do
      some[#some + 1] = '0'
      some[#some + 1] = all[i]
    end
    redis.call('ZADD', KEYS[2], unpack(some))
  end
end
local found = redis.call('ZRANGE', KEYS[2], '[' .. ARGV[1], '+', 'BYLEX', 'LIMIT', 0, ARGV[2])
local before = redis.call('ZRANGE', KEYS[2], '(' .. ARGV[1], '-', 'BYLEX', 'REV', 'LIMIT', 0, 1)
table.insert(found, 1, before[1] or '')
return found
