-- gcra.lua, with the time of Redis, as a limit that several machines share needs it: one key with the theoretical arrival time
-- (TAT), read by GET and written by SET with PX.
--
--   KEYS[1]  the TAT
--   ARGV     emission interval (ms), burst, cost
--   reply    { allowed, remaining, retry_after (ms, -1: none), reset_after (ms) }
local emission_interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local cost, time = tonumber(ARGV[3]), redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local tat = math.max(tonumber(redis.call('GET', KEYS[1])) or now, now)
local new_tat = tat + emission_interval * cost
local allow_at = new_tat - emission_interval * burst
if allow_at > now then
  local remaining = math.floor((now - tat) / emission_interval + burst)
  return { 0, remaining, math.ceil(allow_at - now), math.ceil(tat - now) }
end

redis.call('SET', KEYS[1], new_tat, 'PX', math.ceil(new_tat - now))
return { 1, math.floor((now - allow_at) / emission_interval), -1, math.ceil(new_tat - now) }
