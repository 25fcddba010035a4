-- The leaky bucket as a meter, as it is usually published: a hash with the level and its time. Requests are not delayed:
-- a request that does not fit is refused. The caller gives the time.
--
--   KEYS[1]  the bucket
--   ARGV     capacity, leak rate (units per ms), cost, now (ms)
--   reply    { allowed, remaining, retry_after (ms, -1: none) }
local capacity, leak_rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local cost, now = tonumber(ARGV[3]), tonumber(ARGV[4])

local bucket = redis.call('HMGET', KEYS[1], 'level', 'at')
local level, at = tonumber(bucket[1]) or 0, tonumber(bucket[2]) or now
level = math.max(0, level - (now - at) * leak_rate)
if level + cost > capacity then
  return { 0, math.floor(capacity - level), math.ceil((level + cost - capacity) / leak_rate) }
end

redis.call('HSET', KEYS[1], 'level', level + cost, 'at', now)
redis.call('EXPIRE', KEYS[1], math.ceil(capacity / leak_rate / 1000))
return { 1, math.floor(capacity - level - cost), -1 }
