-- The sliding log as it is usually published: a sorted set with a member for each admitted request, by time. The
-- caller gives the time. Members include the length of the log, because two requests may share a millisecond.
--
--   KEYS[1]  the log
--   ARGV     limit, period (ms), now (ms)
--   reply    { allowed, remaining }
local limit, period, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - period)
local count = redis.call('ZCARD', KEYS[1])
if count >= limit then
  return { 0, 0 }
end

redis.call('ZADD', KEYS[1], now, ARGV[3] .. ':' .. count)
redis.call('PEXPIRE', KEYS[1], period)
return { 1, limit - count - 1 }
