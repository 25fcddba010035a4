-- Declares `audit()`, which writes an entry of the audit trail. It takes the stream from the end of KEYS and its values from the end of
-- ARGV, so that the rest of the script finds its own. The entry is written first: if Redis is full or refuses XADD, the script ends before
-- it changes anything. No other write may come before it: then Redis runs XADD although it is full. Entries end by age alone, by the clock of Redis. `~` removes whole nodes, about 100 entries, which is why reading
-- checks the age too. A stream that gets no more entries ends by its expiry.
--
--   ARGV     who (token:<id>, operator or process), name, action, target, what has changed as JSON, reason, id of the request, how long
--            entries are kept (ms), now in ms or '' for the clock of this server
local audit
do
  local stream, values = table.remove(KEYS), {}
  for i = 9, 1, -1 do values[i] = table.remove(ARGV) end
  audit = function()
    local now, keep = tonumber(values[9]), tonumber(values[8])
    if not now then
      local time = redis.call('TIME')
      now = time[1] * 1000 + math.floor(time[2] / 1000)
    end
    redis.call('XADD', stream, 'MINID', '~', string.format('%d', math.max(0, now - keep)), '*', 'actor', values[1], 'name', values[2],
      'action', values[3], 'target', values[4], 'change', values[5], 'reason', values[6], 'request', values[7])
    -- Without it, the entries still end. An error would make the caller repeat the change, and with it the entry.
    redis.pcall('PEXPIRE', stream, string.format('%d', keep))
  end
end
