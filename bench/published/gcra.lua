-- GCRA as it is usually published: one key with the theoretical arrival time (TAT), read by GET and written by SET
-- with PX. The caller gives the time.
--
--   KEYS[1]  the TAT
--   ARGV     emission interval (ms), burst, cost, now (ms)
--   reply    { allowed, remaining, retry_after (ms, -1: none), reset_after (ms) }
local emission_interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local cost, now = tonumber(ARGV[3]), tonumber(ARGV[4])

local tat = math.max(tonumber(redis.call('GET', KEYS[1])) or now, now)
local new_tat = tat + emission_interval * cost
local allow_at = new_tat - emission_interval * burst
if allow_at > now then
  local remaining = math.floor((now - tat) / emission_interval + burst)
  return { 0, remaining, math.ceil(allow_at - now), math.ceil(tat - now) }
end

redis.call('SET', KEYS[1], new_tat, 'PX', math.ceil(new_tat - now))
return { 1, math.floor((now - allow_at) / emission_interval), -1, math.ceil(new_tat - now) }
