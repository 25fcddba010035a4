-- KEYS: the set, the sorted set. ARGV: the text to begin at; how many. Reply: the member before them, or an empty text; then the members.
if redis.call('SCARD', KEYS[1]) ~= redis.call('ZCARD', KEYS[2]) then
  redis.call('DEL', KEYS[2])
  for _, member in ipairs(redis.call('SMEMBERS', KEYS[1])) do redis.call('ZADD', KEYS[2], 0, member) end
end
local found = redis.call('ZRANGE', KEYS[2], '[' .. ARGV[1], '+', 'BYLEX', 'LIMIT', 0, ARGV[2])
local before = redis.call('ZRANGE', KEYS[2], '(' .. ARGV[1], '-', 'BYLEX', 'REV', 'LIMIT', 0, 1)
table.insert(found, 1, before[1] or '')
return found
