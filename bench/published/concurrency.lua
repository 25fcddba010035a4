-- Limits requests in flight as it is usually published: a sorted set with a member for each request, by the time of its
-- admission. A request that is never removed expires. The caller gives the time.
--
--   KEYS[1]  the requests in flight
--   ARGV     limit, ttl (ms), name of the request, now (ms)
--   reply    { allowed, remaining }
local limit, ttl, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[4])

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ttl)
local count = redis.call('ZCARD', KEYS[1])
if count >= limit then
  return { 0, 0 }
end

redis.call('ZADD', KEYS[1], now, ARGV[3])
redis.call('PEXPIRE', KEYS[1], ttl)
return { 1, limit - count - 1 }
