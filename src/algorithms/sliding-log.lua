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
-- A short log has been read with the states. Of a long one, which Lua would take
-- longer to hash than all else takes, only both ends are: where the first entries
-- stand that still counted the last time, and the newest.
--
-- State: idle_at is when the newest entry has passed; n is the place of the first
-- entry that counted the last time, times 2^20, and the number of entries.
local LOG_ENTRY, LOG_LAYOUT, LOG_NEAR = 11, '>I3I4I4', 32

-- Entries from .. to as bytes; fewer, where there are not so many.
local function bytes_of(log, from, to)
  if log.whole then
    return sub(log.whole, (from - 1) * LOG_ENTRY + 1, to * LOG_ENTRY)
  end
  -- A key of another type has no bytes of ours.
  local bytes = redis.pcall('GETRANGE', log.key, (from - 1) * LOG_ENTRY, to * LOG_ENTRY - 1)
  return type(bytes) == 'string' and bytes or ''
end

-- Time and total of the i-th entry.
local function read_entry(log, i)
  local bytes, at = log.whole, i
  if log.near and i >= log.from and i <= log.to then
    bytes, at = log.near, i - log.from + 1
  elseif not bytes then
    bytes, at = bytes_of(log, i, i), 1
  end
  if #bytes < at * LOG_ENTRY then
    return 0, 0
  end
  local high, low, total = unpack_integers(LOG_LAYOUT, bytes, (at - 1) * LOG_ENTRY + 1)
  return high * 4294967296 + low, total
end

local function write_entry(time, total)
  local high = floor(time / 4294967296)
  return pack_integers(LOG_LAYOUT, high, time - high * 4294967296, total % 4294967296)
end

algorithms['sliding-log'] = function(limit, period, log_key, cost, idle_at, n, now, spent_at, _, values)
  local head = floor(n / 1048576)
  n = n - head * 1048576
  log_key = log_key + 0
  local log = { whole = values[log_key] or nil, key = KEYS[log_key] }
  local newest, total, has_room = 0, 0, false
  if n > 1 and head > 1 and head <= n and (log.whole or values[log_key] == nil) then
    if log.whole then
      newest, total = read_entry(log, n)
      has_room = #log.whole >= (n + 1) * LOG_ENTRY
    else
      log.from, log.to = head - 1, n - head < 2 * LOG_NEAR and n + 1 or head + LOG_NEAR
      log.near = bytes_of(log, log.from, log.to)
      local last = log.to > n and sub(log.near, (n - log.from) * LOG_ENTRY + 1) or bytes_of(log, n, n + 1)
      if #last >= LOG_ENTRY then
        newest, total = read_entry({ whole = last }, 1)
        has_room = #last == 2 * LOG_ENTRY
      end
    end
  end
  -- A log that does not fit its record (evicted, foreign, or of a clock set back
  -- by more than a period) is an idle caller's.
  if newest <= now - period or newest > now + period or ceil_to_ms(newest + period) ~= idle_at then
    n, head, newest, total = 0, 2, 0, 0
  end

  -- The first entry that still counts. What had passed when the newest came stays
  -- passed, also for a clock set back: it need not be in the log any more.
  local passed = (now > newest and now or newest) - period
  local first, beyond = head, n + 1
  if log.near and log.to < n then
    -- Few have passed since the last time.
    if read_entry(log, log.to) > passed then
      beyond = log.to
    else
      first = log.to + 1
    end
  end
  while first < beyond do
    local middle = floor((first + beyond) / 2)
    if read_entry(log, middle) > passed then
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
    if log.near and log.to >= first and log.to < n then
      local _, by_then = read_entry(log, log.to)
      if (total - by_then) % 4294967296 <= limit - cost then
        high = log.to
      else
        low = log.to + 1
      end
    end
    while low < high do
      local middle = floor((low + high) / 2)
      local _, by_then = read_entry(log, middle)
      if (total - by_then) % 4294967296 <= limit - cost then
        high = middle
      else
        low = middle + 1
      end
    end
    local retry_after = read_entry(log, low) + period - now
    if retry_after > 0 and retry_after <= 2 * period then
      return retry_after, remaining, reset_after
    end
    -- Entries that are not in order are not ours: an idle caller's.
    n, newest, total, used, remaining, reset_after = 0, 0, 0, 0, limit, 0
  end

  if cost < 0 then
    local back, bytes, offset = -cost < used and -cost or used
    if spent_at then
      -- Only what was spent in that very microsecond: those after it are counted anew.
      local at, last = first, n
      while at < last do
        local middle = floor((at + last) / 2)
        if read_entry(log, middle) < spent_at then
          at = middle + 1
        else
          last = middle
        end
      end
      local time, by_then, before = 0, 0, 0
      if back > 0 then
        time, by_then = read_entry(log, at)
        _, before = read_entry(log, at - 1)
      end
      local units = (by_then - before) % 4294967296
      back = time == spent_at and (units < back and units or back) or 0
      if back > 0 then
        local is_gone = back == units
        local from = is_gone and at + 1 or at
        local rest, moved = { whole = bytes_of(log, from, n) }, {}
        for i = 1, n - from + 1 do
          time, by_then = read_entry(rest, i)
          moved[i] = write_entry(time, by_then - back)
        end
        n = is_gone and n - 1 or n
        if #moved > 0 then
          bytes, offset = concat(moved), (at - 1) * LOG_ENTRY
        else
          newest = read_entry(log, n)
        end
      end
    elseif back > 0 and back < used then
      -- The newest units: the first entry by which all but those were admitted is the
      -- last that stays, with what is left of it.
      local last, beyond = first, n
      while last < beyond do
        local middle = floor((last + beyond) / 2)
        local _, by_then = read_entry(log, middle)
        if (total - by_then) % 4294967296 <= back then
          beyond = middle
        else
          last = middle + 1
        end
      end
      n, newest = last, read_entry(log, last)
      bytes, offset = write_entry(newest, total - back), (last - 1) * LOG_ENTRY
    end
    used = used - back
    -- Nothing is left, or what is left is not ours.
    if used == 0 or newest <= now - period or newest > now + period then
      n, newest, used, bytes = 0, now - period, 0, nil
    end
    return 0, remaining, reset_after,
      used < limit and limit - used or 0, used > 0 and newest + period - now or 0,
      ceil_to_ms(newest + period), head * 1048576 + n, 0, bytes, offset
  end

  local time = now > newest and now or newest
  local entry = write_entry(time, total + cost)
  local bytes, offset
  if time == newest then
    bytes, offset = entry, (n - 1) * LOG_ENTRY
  elseif n > 0 and has_room then
    bytes, offset = entry, n * LOG_ENTRY
    n = n + 1
  else
    local counting = n > 0 and bytes_of(log, first - 1, n) or write_entry(0, 0)
    n, first = #counting / LOG_ENTRY + 1, 2
    bytes = counting .. entry .. rep('\0', (floor(n / 8) + 1) * LOG_ENTRY)
  end
  return 0, remaining, reset_after,
    limit - used - cost, time + period - now,
    ceil_to_ms(time + period), first * 1048576 + n, 0, bytes, offset
end
