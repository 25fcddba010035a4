-- Sliding log: exactly `limit` in any `period`. Model: sliding-log.ts, kept line
-- for line.
--
-- Every admitted request leaves an entry in a log of its own key: when, and all
-- units ever admitted by then, modulo 2^32. Both grow, so two binary searches
-- find what still counts and when enough of it will not, whatever the costs. An
-- entry at t counts until just before t + period.
--
-- LOG_ENTRY bytes an entry, the first of them no request but what went before.
-- Room for some entries is kept behind the last, so that one more costs a few
-- bytes, and the whole is written anew, without what has passed, when it is used up.
--
-- State: idle_at is when the newest entry has passed, n the number of entries.
local LOG_ENTRY, LOG_LAYOUT = 11, '>I3I4I4'

-- Time and total of the i-th entry.
local function read_entry(log, i)
  local high, low, total = unpack_integers(LOG_LAYOUT, log, (i - 1) * LOG_ENTRY + 1)
  return high * 4294967296 + low, total
end

local function write_entry(time, total)
  local high = floor(time / 4294967296)
  return pack_integers(LOG_LAYOUT, high, time - high * 4294967296, total % 4294967296)
end

algorithms['sliding-log'] = function(limit, period, log_key, cost, idle_at, n, now, spent_at, values)
  local log = values[log_key + 0]
  local newest, total = 0, 0
  if n > 0 and log and #log >= n * LOG_ENTRY then
    newest, total = read_entry(log, n)
  end
  -- A log that does not fit its record (evicted, foreign, or of a clock set back
  -- by more than a period) is an idle caller's.
  if newest <= now - period or newest > now + period or ceil_to_ms(newest + period) ~= idle_at then
    n, newest, total = 0, 0, 0
  end

  -- The first entry that still counts.
  local first, beyond = 2, n + 1
  while first < beyond do
    local middle = floor((first + beyond) / 2)
    if read_entry(log, middle) > now - period then
      beyond = middle
    else
      first = middle + 1
    end
  end
  local used = 0
  if n > 0 then
    local _, before = read_entry(log, first - 1)
    used = (total - before) % 4294967296
  end
  local remaining = used < limit and limit - used or 0
  local reset_after = used > 0 and newest + period - now or 0

  -- A peek is never refused, even where the limit has since been lowered.
  if cost == 0 then
    return 0, remaining, reset_after
  end
  if cost > limit then
    return -1, remaining, reset_after
  end
  if cost > 0 and used + cost > limit then
    -- The first entry after which no more than limit - cost has been admitted: when it has passed, there is room.
    local low, high = first, n
    while low < high do
      local middle = floor((low + high) / 2)
      local _, by_then = read_entry(log, middle)
      if (total - by_then) % 4294967296 <= limit - cost then
        high = middle
      else
        low = middle + 1
      end
    end
    return read_entry(log, low) + period - now, remaining, reset_after
  end

  if cost < 0 then
    -- The newest units go first, or those of the time that is told. What is left
    -- is counted anew, from the oldest on.
    local kept = {}
    local back, last = -cost, n
    while last >= first do
      local time, by_then = read_entry(log, last)
      local _, before = read_entry(log, last - 1)
      local units = (by_then - before) % 4294967296
      if not spent_at or time == spent_at then
        local taken = units < back and units or back
        units, back = units - taken, back - taken
      end
      if units > 0 then
        kept[#kept + 1] = { time, units }
      end
      last = last - 1
    end
    newest, total, used = #kept > 0 and kept[1][1] or now - period, 0, 0
    local bytes = write_entry(0, 0)
    for i = #kept, 1, -1 do
      used = used + kept[i][2]
      bytes = bytes .. write_entry(kept[i][1], used)
    end
    return 0, remaining, reset_after,
      used < limit and limit - used or 0, newest + period - now,
      ceil_to_ms(newest + period), #kept + 1, 0, bytes
  end

  local time = now > newest and now or newest
  local entry = write_entry(time, total + cost)
  local bytes, offset
  if time == newest then
    bytes, offset = entry, (n - 1) * LOG_ENTRY
  elseif n > 0 and #log >= (n + 1) * LOG_ENTRY then
    bytes, offset = entry, n * LOG_ENTRY
    n = n + 1
  else
    local counting = n > 0 and sub(log, (first - 2) * LOG_ENTRY + 1, n * LOG_ENTRY) or write_entry(0, 0)
    n = #counting / LOG_ENTRY + 1
    bytes = counting .. entry .. rep('\0', (floor(n / 8) + 1) * LOG_ENTRY)
  end
  return 0, remaining, reset_after,
    limit - used - cost, time + period - now,
    ceil_to_ms(time + period), n, 0, bytes, offset
end
