-- Sliding log: admits exactly `limit` in any `period`. Model: sliding-log.ts, with the
-- same sections. In the model, the log is a list. In Redis, it is a string in its own
-- key, and each section reads and writes as few bytes as possible, so the steps differ.
--
-- Each admitted request adds an entry: its time, and the units admitted in all up to
-- this request, modulo 2^32. Both numbers grow, so a binary search finds the first
-- entry that still counts. A second search finds the entry whose expiry makes room for
-- a cost. An entry at time t counts until just before t + period.
--
-- An entry takes LOG_ENTRY bytes. The first entry is not a request: it holds the total
-- before the others. Free room is kept behind the last entry, so that adding one writes
-- only a few bytes. When the room is used up, the whole log is rewritten without the
-- entries that have expired.
--
-- A short log has been read together with the states. Loading a long log into Lua would
-- take longer than everything else, so only two parts of it are read: some entries from
-- the head on, and the newest. The head is the first entry that still counted when units
-- were last spent.
--
-- State: idle_at is when the newest entry no longer counts. n is the index of the head,
-- times 2^20, plus the number of entries.
--@ numbers limit, period, own_key
--@ keeps log, head, entries, newest, total, has_room, first, used

--@ declare
local LOG_ENTRY, LOG_LAYOUT, LOG_NEAR = 11, '>I3I4I4', 32

-- The bytes of the entries `from` to `to` (indexes); fewer bytes if the log is shorter.
local function log_bytes_between(log, from, to)
  if log.whole then
    return sub(log.whole, (from - 1) * LOG_ENTRY + 1, to * LOG_ENTRY)
  end
  -- A key of another type answers with an error.
  local bytes = redis.pcall('GETRANGE', log.key, (from - 1) * LOG_ENTRY, to * LOG_ENTRY - 1)
  return type(bytes) == 'string' and bytes or ''
end

-- Time and total of the i-th entry.
local function read_entry(log, i)
  local bytes, at = log.whole, i
  if log.near and i >= log.from and i <= log.to then
    bytes, at = log.near, i - log.from + 1
  elseif not bytes then
    bytes, at = log_bytes_between(log, i, i), 1
  end
  if #bytes < at * LOG_ENTRY then
    return 0, 0
  end
  local high, low, total = unpack_integers(LOG_LAYOUT, bytes, (at - 1) * LOG_ENTRY + 1)
  return high * 4294967296 + low, total
end

local function write_entry(time, total)
  local low = time % 4294967296
  return pack_integers(LOG_LAYOUT, (time - low) / 4294967296, low, total % 4294967296)
end

--@ read
entries = n % 1048576
head = (n - entries) / 1048576
log = { whole = values[own_key] or nil, key = KEYS[own_key] }
newest, total, has_room = 0, 0, false
if entries > 1 and head > 1 and head <= entries and (log.whole or values[own_key] == nil) then
  if log.whole then
    newest, total = read_entry(log, entries)
    has_room = #log.whole >= (entries + 1) * LOG_ENTRY
  else
    log.from = head - 1
    log.to = entries - head < 2 * LOG_NEAR and entries + 1 or head + LOG_NEAR
    log.near = log_bytes_between(log, log.from, log.to)
    local last = log.to > entries and sub(log.near, (entries - log.from) * LOG_ENTRY + 1)
      or log_bytes_between(log, entries, entries + 1)
    if #last >= LOG_ENTRY then
      newest, total = read_entry({ whole = last }, 1)
      has_room = #last == 2 * LOG_ENTRY
    end
  end
end
-- A log that does not match its record counts as empty: it was evicted, written by
-- another program, or the clock was set back by more than a period.
if newest <= now - period or newest > now + period or ceil_to_ms(newest + period) ~= idle_at then
  entries, head, newest, total = 0, 2, 0, 0
end

-- Find the first entry that still counts. Entries that had expired when the newest one
-- was added stay expired, even if the clock was set back, because they may no longer be
-- in the log.
local passed = (now > newest and now or newest) - period
-- Few entries have expired since units were last spent, so the search starts at `head`, with a
-- stride that doubles.
first = head
local beyond, stride = head, 1
while beyond <= entries and read_entry(log, beyond) <= passed do
  first, beyond, stride = beyond + 1, beyond + stride, 2 * stride
end
if beyond > entries then
  beyond = entries + 1
end
while first < beyond do
  local middle = floor_div(first + beyond, 2)
  if read_entry(log, middle) > passed then
    beyond = middle
  else
    first = middle + 1
  end
end
used = 0
if entries > 0 then
  local _, before = read_entry(log, first - 1)
  used = (total - before) % 4294967296
end

--@ check
if cost > limit then
  retry_after = -1
elseif used + cost > limit then
  -- Time until the cost fits: until the entries that remain have at most limit - cost
  -- units. Most requests cost little, so the entry whose expiry makes room is near the
  -- first one, and the search uses a stride that doubles.
  local low, high, stride = first, first, 1
  while high < entries do
    local _, by_then = read_entry(log, high)
    if (total - by_then) % 4294967296 <= limit - cost then
      break
    end
    low, high, stride = high + 1, high + stride, 2 * stride
  end
  if high > entries then
    high = entries
  end
  while low < high do
    local middle = floor_div(low + high, 2)
    local _, by_then = read_entry(log, middle)
    if (total - by_then) % 4294967296 <= limit - cost then
      high = middle
    else
      low = middle + 1
    end
  end
  retry_after = read_entry(log, low) + period - now
  if retry_after <= 0 or retry_after > 2 * period then
    -- Entries that are not in order were not written by this script. The log counts as
    -- empty.
    retry_after, entries, newest, total, used = 0, 0, 0, 0, 0
  end
end

--@ spend
local time = now > newest and now or newest
local entry = write_entry(time, total + cost)
if time == newest then
  own_bytes, own_offset = entry, (entries - 1) * LOG_ENTRY
elseif entries > 0 and has_room then
  own_bytes, own_offset = entry, entries * LOG_ENTRY
  entries = entries + 1
else
  local counting = entries > 0 and log_bytes_between(log, first - 1, entries) or write_entry(0, 0)
  entries, first = #counting / LOG_ENTRY + 1, 2
  own_bytes = counting .. entry .. rep('\0', (floor_div(entries, 8) + 1) * LOG_ENTRY)
end
newest, used, head = time, used + cost, first

--@ refund
-- Gives back only units that were spent exactly at `spent_at`, and lowers the
-- totals of all later entries.
local at, last = first, entries
while at < last do
  local middle = floor_div(at + last, 2)
  if read_entry(log, middle) < spent_at then
    at = middle + 1
  else
    last = middle
  end
end
local back, spent_then = 0, 0
if used > 0 then
  local time, by_then = read_entry(log, at)
  local _, before = read_entry(log, at - 1)
  spent_then = (by_then - before) % 4294967296
  back = time == spent_at and spent_then or 0
  back = back < units and back or units
  back = back < used and back or used
end
if back > 0 then
  local from = back == spent_then and at + 1 or at
  local rest, lowered = { whole = log_bytes_between(log, from, entries) }, {}
  for i = 1, entries - from + 1 do
    local time, by_then = read_entry(rest, i)
    lowered[i] = write_entry(time, by_then - back)
  end
  entries = back == spent_then and entries - 1 or entries
  if #lowered > 0 then
    own_bytes, own_offset = concat(lowered), (at - 1) * LOG_ENTRY
  else
    newest = read_entry(log, entries)
  end
end
used = used - back
-- The log is empty now, or its entries were not written by this script.
if used == 0 or newest <= now - period or newest > now + period then
  entries, newest, used, own_bytes = 0, now - period, 0, nil
end

--@ standing
remaining = used < limit and limit - used or 0
reset_after = used > 0 and newest + period - now or 0

--@ write
idle_at, n = ceil_to_ms(newest + period), head * 1048576 + entries
