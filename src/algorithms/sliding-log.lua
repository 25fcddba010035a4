-- Sliding log: admits exactly `limit` in any `period`. Model: sliding-log.ts, with the
-- same sections. In the model, the log is a list. In Redis, a decision reads and writes
-- at most about 2 kB of it, however long it is, so the steps differ.
--
-- Each admitted request adds an entry: its time, and the units admitted in all up to
-- this request, modulo 2^32. Both numbers grow, so a binary search finds the first
-- entry that still counts. A second search finds the entry whose expiry makes room for
-- a cost. An entry at time t counts until just before t + period.
--
-- The entries are in a string in its side key, LOG_ENTRY bytes each, which is read
-- together with the states, and written without the entries that have expired. The first
-- entry is not a request: it holds the total before the others.
--
-- If more than LOG_PLAIN entries count, the string has only the oldest entries (the
-- front) and the newest (the back). Those between, the middle, are in a hash in a second
-- key: LOG_CHUNK entries in each field. When the back is full, it becomes a chunk. When
-- the front has expired, the oldest chunk replaces it. The entries are numbered in
-- order of time: front, middle, back. Instead of a time, the first entry of the string
-- then has 2^24 - 1, and the shape of the log: the field of the oldest chunk (times
-- 2^20), the number of chunks (times 2^8) and the number of entries in the front.
--
-- A script can fail at each command: Redis is full, or the user may not run it. So chunks
-- are written before any string and any state, and only to fields that no string refers
-- to. If a later command fails, nothing was spent. What a string no longer refers to is
-- removed by a later decision.
--
-- State: idle_at is when the newest entry no longer counts. n is the number of the head,
-- times 2^20, plus the number of entries. The search for the first entry that still counts
-- begins at the head. Earlier versions wrote all entries to the string, however many, with
-- room behind them, and not every head is 2. The next request that is admitted writes
-- such a log anew.
--@ numbers limit, period, side_key, chunks_key
--@ keeps log, head, entries, newest, total, front, middle, oldest, first, first_at, first_total, used

--@ declare
-- What most decisions do not need: searches beyond the first entries, and new shapes. The
-- fewer locals of the script it uses, the less time its definition takes, so it names
-- functions of libraries in full.
local function open_log(text, key, front, middle, oldest)
  local log, had_chunks, known, chunk = {}, middle > 0

  -- The bytes of a chunk, numbered from 0.
  local function read_chunk(number)
    if number ~= known then
      -- A key of another type counts like one that was evicted.
      local bytes = redis.pcall('HGET', key, (oldest + number) % LOG_FIELDS)
      if type(bytes) == 'table' and not string.find(bytes.err, 'WRONGTYPE', 1, true) then
        error(bytes.err)
      end
      local is_whole = type(bytes) == 'string' and #bytes == LOG_CHUNK * LOG_ENTRY
      log.is_damaged = log.is_damaged or not is_whole
      known, chunk = number, is_whole and bytes or string.rep('\0', LOG_ENTRY * LOG_CHUNK)
    end
    return chunk
  end

  -- Time and total of the i-th entry.
  function log.entry(i)
    local bytes, at = text, i
    if i > front then
      local place = i - front - 1
      if place < middle then
        at = place % LOG_CHUNK + 1
        bytes = read_chunk((place + 1 - at) / LOG_CHUNK)
      else
        at = i - middle
      end
    end
    local high, low, total = unpack_integers('>I3I4I4', bytes, (at - 1) * LOG_ENTRY + 1)
    return high * 4294967296 + low, total
  end

  -- Finds the first entry from `low` on that fits. Usually it is near `low`, so the search
  -- begins there, with a stride that doubles. Returns last + 1 if no entry fits.
  function log.find(low, last, fits)
    local high, stride = low, 1
    while high <= last and not fits(log.entry(high)) do
      low, high, stride = high + 1, high + stride, 2 * stride
    end
    high = high > last and last + 1 or high
    while low < high do
      local middle = (low + high - (low + high) % 2) / 2
      if fits(log.entry(middle)) then
        high = middle
      else
        low = middle + 1
      end
    end
    return low
  end

  -- Returns the string for these entries and the chunks, and the number of entries.
  -- `before`: the total before them. `ttl`: that of the chunks.
  local function shape(before, oldest_bytes, newest_bytes, ttl)
    local chunk_bytes, fields = LOG_CHUNK * LOG_ENTRY, {}
    if middle == 0 and #oldest_bytes + #newest_bytes <= LOG_PLAIN * LOG_ENTRY then
      local bytes = pack_integers('>I3I4I4', 0, 0, before) .. oldest_bytes .. newest_bytes
      return bytes, #bytes / LOG_ENTRY
    end
    if #oldest_bytes > chunk_bytes then
      newest_bytes = string.sub(oldest_bytes, chunk_bytes + 1) .. newest_bytes
      oldest_bytes = string.sub(oldest_bytes, 1, chunk_bytes)
    end
    for from = 1, #newest_bytes - chunk_bytes, chunk_bytes do
      fields[#fields + 1] = (oldest + middle / LOG_CHUNK) % LOG_FIELDS
      fields[#fields + 1] = string.sub(newest_bytes, from, from + chunk_bytes - 1)
      middle = middle + LOG_CHUNK
    end
    if #fields > 0 then
      -- Fails here if it may not run. The key may not exist yet, so it is repeated.
      redis.call('EXPIRE', key, ttl)
      if not had_chunks then
        -- Chunks of an earlier log may be left.
        redis.call('UNLINK', key)
      end
      redis.call('HSET', key, unpack(fields))
      redis.call('EXPIRE', key, ttl)
      newest_bytes = string.sub(newest_bytes, #fields / 2 * chunk_bytes + 1)
    end
    local count = #oldest_bytes / LOG_ENTRY + 1
    local numbers = (oldest * LOG_FIELDS + middle / LOG_CHUNK) * 256 + count
    local bytes = pack_integers('>I3I4I4', 16777215, numbers, before) .. oldest_bytes .. newest_bytes
    return bytes, #bytes / LOG_ENTRY + middle
  end

  -- Adds an entry after the first `last` entries of the string, and drops entries that have
  -- expired, with at most 32 chunks. Returns the string and the number of entries.
  function log.add(entry, first, last, before, ttl)
    local oldest_bytes, back, passed = '', front + 1, first - front - 1
    if passed < 0 then
      oldest_bytes = string.sub(text, (first - 1) * LOG_ENTRY + 1, (front < last and front or last) * LOG_ENTRY)
    elseif passed < middle then
      local number, fields = (passed - passed % LOG_CHUNK) / LOG_CHUNK, {}
      local from = passed % LOG_CHUNK
      if number > 31 then
        -- Only expired entries, so that `before` has no meaning.
        number, from = 31, 0
      end
      oldest_bytes = string.sub(read_chunk(number), from * LOG_ENTRY + 1)
      -- What earlier decisions have left.
      for i = 1, math.min(redis.call('HLEN', key) - middle / LOG_CHUNK, 32) do
        fields[i] = (oldest - i) % LOG_FIELDS
      end
      if #fields > 0 then
        redis.call('HDEL', key, unpack(fields))
      end
      oldest, middle = (oldest + number + 1) % LOG_FIELDS, middle - (number + 1) * LOG_CHUNK
    else
      back, middle = first - middle, 0
    end
    local newest_bytes = string.sub(text, (back - 1) * LOG_ENTRY + 1, last * LOG_ENTRY) .. entry
    return shape(before, oldest_bytes, newest_bytes, ttl)
  end

  -- The bytes of the entries from the i-th to the last one.
  function log.rest(i, entries)
    local place, parts = i - front - 1, {}
    if place < 0 then
      parts[1], place = string.sub(text, (i - 1) * LOG_ENTRY + 1, front * LOG_ENTRY), 0
    end
    local skipped = place < middle and place % LOG_CHUNK or place - middle
    for number = (place - place % LOG_CHUNK) / LOG_CHUNK, middle / LOG_CHUNK - 1 do
      parts[#parts + 1], skipped = string.sub(read_chunk(number), skipped * LOG_ENTRY + 1), 0
    end
    parts[#parts + 1] = string.sub(text, (front + skipped) * LOG_ENTRY + 1, (entries - middle) * LOG_ENTRY)
    return table.concat(parts)
  end

  -- Replaces the entries from the i-th on. Returns the string and the number of entries.
  function log.replace(i, bytes, ttl)
    local _, _, before = unpack_integers('>I3I4I4', text)
    local place, oldest_bytes = i - front - 1, ''
    if middle == 0 or place > middle or place == middle and bytes ~= '' then
      return string.sub(text, 1, (i - middle - 1) * LOG_ENTRY) .. bytes, i - 1 + #bytes / LOG_ENTRY
    elseif place < 0 then
      oldest_bytes, middle = string.sub(text, LOG_ENTRY + 1, (i - 1) * LOG_ENTRY), 0
    else
      local number = place < middle and (place - place % LOG_CHUNK) / LOG_CHUNK or middle / LOG_CHUNK - 1
      oldest_bytes = string.sub(text, LOG_ENTRY + 1, front * LOG_ENTRY)
      bytes = string.sub(read_chunk(number), 1, (place - number * LOG_CHUNK) * LOG_ENTRY) .. bytes
      middle = number * LOG_CHUNK
    end
    return shape(before, oldest_bytes, bytes, ttl)
  end

  return log
end

--@ read
log = values[side_key] or ''
entries = n % 1048576
head = (n - entries) / 1048576
front, middle, oldest, newest, total, first_at, first_total = entries, 0, 0, 0, 0, 0, 0
local before = 0
if head > 1 and head <= entries and #log >= head * LOG_ENTRY then
  -- The first two entries. A log without chunks can have a later head.
  local high, low, first_high, first_low
  high, low, before, first_high, first_low, first_total =
    unpack_integers('>I3I4I4I3I4I4', log, (head - 2) * LOG_ENTRY + 1)
  first_at = first_high * 4294967296 + first_low
  if high == 16777215 then
    front = low % 256
    middle = (low - front) / 256 % LOG_FIELDS * LOG_CHUNK
    oldest = floor_div(low, 256 * LOG_FIELDS)
  end
  if front > 0 and front + middle <= entries and #log >= (entries - middle) * LOG_ENTRY then
    high, low, total = unpack_integers('>I3I4I4', log, (entries - middle - 1) * LOG_ENTRY + 1)
    newest = high * 4294967296 + low
  end
end
-- A log that does not match its record counts as empty: it was evicted, written by
-- another program, or the clock was set back by more than a period.
if newest <= now - period or newest > now + period or ceil_to_ms(newest + period) ~= idle_at then
  log, entries, head, newest, total, front, middle, before = '', 0, 2, 0, 0, 0, 0, 0
end

-- Find the first entry that still counts. Entries that had expired when the newest one
-- was added stay expired, even if the clock was set back, because they may no longer be
-- in the log. Few entries have expired since units were last spent, so the search starts
-- at `head`.
local passed = (now > newest and now or newest) - period
first = head
if first_at <= passed and entries > 0 then
  local high, low
  while first_at <= passed and first < front and first < head + 8 do
    before, first = first_total, first + 1
    high, low, first_total = unpack_integers('>I3I4I4', log, (first - 1) * LOG_ENTRY + 1)
    first_at = high * 4294967296 + low
  end
  if first_at <= passed then
    local parts = open_log(log, KEYS[chunks_key], front, middle, oldest)
    first = parts.find(first, entries, function(time)
      return time > passed
    end)
    first_at, first_total = parts.entry(first)
    high, before = parts.entry(first - 1)
    if parts.is_damaged then
      log, entries, head, newest, total, front, middle, first, before = '', 0, 2, 0, 0, 0, 0, 2, 0
    end
  end
end
used = (total - before) % 4294967296

--@ check
if cost > limit then
  retry_after = -1
elseif used + cost > limit then
  -- Time until the cost fits: until the entries that remain have at most limit - cost
  -- units. Most requests cost little, so the expiry of the first one often makes room.
  local frees_at, most = first_at, limit - cost
  if (total - first_total) % 4294967296 > most then
    local parts = open_log(log, KEYS[chunks_key], front, middle, oldest)
    frees_at = parts.entry(parts.find(first, entries - 1, function(_, by_then)
      return (total - by_then) % 4294967296 <= most
    end))
    frees_at = parts.is_damaged and 0 or frees_at
  end
  retry_after = frees_at + period - now
  if retry_after <= 0 or retry_after > 2 * period then
    -- Entries that are not in order were not written by this script. The log counts as
    -- empty.
    retry_after, log, entries, head, newest, total, front, middle, first, used = 0, '', 0, 2, 0, 0, 0, 0, 2, 0
  end
end

--@ spend
local time = now > newest and now or newest
local low = time % 4294967296
local entry = pack_integers('>I3I4I4', (time - low) / 4294967296, low, (total + cost) % 4294967296)
-- The entries of the string that stay. Requests of the same microsecond share an entry.
local last, before = entries - middle - (time == newest and 1 or 0), (total - used) % 4294967296
if middle == 0 and last - first + 2 <= LOG_PLAIN then
  side_bytes = pack_integers('>I3I4I4', 0, 0, before) .. sub(log, (first - 1) * LOG_ENTRY + 1, last * LOG_ENTRY) .. entry
  entries = #side_bytes / LOG_ENTRY
elseif middle > 0 and first <= front and last < front + LOG_CHUNK then
  local shape = (oldest * LOG_FIELDS + middle / LOG_CHUNK) * 256 + front - first + 2
  side_bytes = pack_integers('>I3I4I4', 16777215, shape, before) .. sub(log, (first - 1) * LOG_ENTRY + 1, last * LOG_ENTRY) .. entry
  entries = #side_bytes / LOG_ENTRY + middle
else
  local life, parts = life_until(time + period), open_log(log, KEYS[chunks_key], front, middle, oldest)
  side_bytes, entries = parts.add(entry, first, last, before, format('%d', spread(life)))
end
newest, used, head = time, used + cost, 2

--@ refund
-- Gives back only units that were spent exactly at `spent_at`, and lowers the
-- totals of all later entries.
local parts = open_log(log, KEYS[chunks_key], front, middle, oldest)
local back, spent_then, at = 0, 0
if used > 0 then
  at = parts.find(first, entries - 1, function(time)
    return time >= spent_at
  end)
  local time, by_then = parts.entry(at)
  local _, before = parts.entry(at - 1)
  spent_then = (by_then - before) % 4294967296
  back = time == spent_at and spent_then or 0
  back = back < units and back or units
  back = back < used and back or used
end
if back > 0 then
  -- Four entries at a time, because there can be many.
  local layout, rest, lowered = '>I3I4I4I3I4I4I3I4I4I3I4I4', parts.rest(back == spent_then and at + 1 or at, entries), {}
  local padded = rest .. string.rep('\0', 3 * LOG_ENTRY)
  for i = 1, #rest, 4 * LOG_ENTRY do
    local a, b, total_a, c, d, total_c, e, f, total_e, g, h, total_g = unpack_integers(layout, padded, i)
    lowered[#lowered + 1] = pack_integers(layout, a, b, (total_a - back) % 4294967296, c, d, (total_c - back) % 4294967296,
      e, f, (total_e - back) % 4294967296, g, h, (total_g - back) % 4294967296)
  end
  local life = life_until(newest + period)
  newest = rest ~= '' and newest or parts.entry(at - 1)
  if not parts.is_damaged then
    side_bytes, entries = parts.replace(at, sub(table.concat(lowered), 1, #rest), format('%d', spread(life)))
    used = used - back
  end
end
-- The log is empty now, or its entries were not written by this script.
if used == 0 or newest <= now - period or newest > now + period then
  entries, newest, used, side_bytes = 0, now - period, 0, nil
end

--@ standing
remaining = used < limit and limit - used or 0
reset_after = used > 0 and newest + period - now or 0

--@ write
idle_at, n = ceil_to_ms(newest + period), head * 1048576 + entries
