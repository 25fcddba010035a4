-- Shared by every script and every algorithm. All times are integers in
-- microseconds, all amounts are integers; each stays below 2^52 (the config
-- check ensures it), where the double arithmetic of Lua 5.1 is exact.
--
-- STATE. All counters of one identity live in one string of records, one record
-- a rule, RECORD bytes each, most significant bit first:
--
--     3 bytes  tag       the rule that the record belongs to: a hash of its name,
--                        its algorithm and the numbers that its state depends on
--                        (config/compile-rule.ts), so that no rule reads the
--                        numbers of another
--     42 bits  idle_at   the instant from which the record means an idle caller,
--                        in whole milliseconds before the end of the year 2109.
--                        Counted backwards, so that foreign text reads as an
--                        instant that is too far ahead to be valid
--     46 bits  n         defined by the algorithm
--
-- Bytes and not text: three rules take 42 bytes, which Redis keeps in one
-- allocation with the object, and they are read in a third of the time. A value
-- whose length is not a multiple of RECORD (truncated, foreign) reads as idle,
-- and the next commit replaces it.

local redis, type, unpack, ARGV, KEYS = redis, type, unpack, ARGV, KEYS
local floor, concat = math.floor, table.concat
local byte, char, find, format, gmatch, gsub, match, rep, sub =
  string.byte, string.char, string.find, string.format, string.gmatch, string.gsub, string.match, string.rep, string.sub

local RECORD, RECORD_LAYOUT, LAST_MS = 14, '>I4I4I3', 2 ^ 42 - 1

-- Three integers to bytes and back, by the struct library of Redis. The same in
-- Lua takes three times as long and serves as a replacement on a server without
-- that library. Each integer has at most four bytes, which the library supports
-- on every machine.
local pack_integers, unpack_integers
local struct = rawget(_G, 'struct')
if struct then
  pack_integers, unpack_integers = struct.pack, struct.unpack
else
  pack_integers = function(layout, ...)
    local values, bytes, i = { ... }, '', 0
    for width in gmatch(layout, '%d') do
      i = i + 1
      local value, digits = values[i], ''
      for _ = 1, width do
        digits = char(value % 256) .. digits
        value = floor(value / 256)
      end
      bytes = bytes .. digits
    end
    return bytes
  end
  unpack_integers = function(layout, text, at)
    local values = {}
    for width in gmatch(layout, '%d') do
      local value = 0
      for _ = 1, width do
        value = value * 256 + byte(text, at)
        at = at + 1
      end
      values[#values + 1] = value
    end
    return unpack(values)
  end
end

-- ceil(a / b) for integers. Taking the remainder is faster than calling floor.
local function ceil_div(a, b)
  return (a + -a % b) / b
end

-- Rounds up to whole milliseconds.
local function ceil_to_ms(microseconds)
  return microseconds + -microseconds % 1000
end

-- The position of the record with this tag in a state, or nil. The bytes of a tag
-- can occur inside another record by chance, but not where a record begins.
local function locate(state, tag)
  if #state % RECORD ~= 0 then
    return nil
  end
  local at = find(state, tag, 1, true)
  while at and at % RECORD ~= 1 do
    at = find(state, tag, at + 1, true)
  end
  return at
end

-- idle_at (in microseconds) and n of the record that begins at `at`.
local function read_record(state, at)
  local a, b, c = unpack_integers(RECORD_LAYOUT, state, at + 3)
  local b_low = b % 4194304
  return (LAST_MS - a * 1024 - (b - b_low) / 4194304) * 1000, b_low * 16777216 + c
end

-- The bytes of a record after its tag. idle_at is a multiple of 1000.
local function write_record(idle_at, n)
  local ms_left = LAST_MS - idle_at / 1000
  local ms_low, n_low = ms_left % 1024, n % 16777216
  return pack_integers(RECORD_LAYOUT, (ms_left - ms_low) / 1024, ms_low * 4194304 + (n - n_low) / 16777216, n_low)
end

-- A state stays this much longer than it means anything, so that a failover to a
-- slower clock still finds it. This is garbage collection, never meaning, so whole
-- seconds suffice. Three years of them fit into a C integer of 32 bits, so '%d'
-- can write them, which is faster than '%.0f'.
local KEEP_SECONDS = 10

local function life_of(idle_at, now)
  return format('%d', ceil_div(idle_at - now, 1000000) + KEEP_SECONDS)
end

-- No record of Sluice lies further ahead than this. The longest time to refill is
-- two years (config/compile-rule.ts), and twice that after a clock has been set
-- back by as much; one day allows for rounding.
local HORIZON = (4 * 366 + 1) * 86400e6

-- The instant of this run in microseconds.
--   given  an instant, or '' for the clock of this server
local function instant(given)
  if given ~= '' then
    return given + 0
  end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
