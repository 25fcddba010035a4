-- Shared by every algorithm and by main.lua. All times are integers in
-- microseconds, all amounts are integers; each stays below 2^52 (the config
-- check sees to it), where the double arithmetic of Lua 5.1 is exact.
--
-- STATE. All counters of one identity live in one string of records, one record
-- a rule, RECORD bytes each, most significant bit first:
--
--     3 bytes  tag       whose record it is: rule name, algorithm and whatever
--                        else its numbers hang on, hashed (config/compile-rule.ts),
--                        so that no rule reads another's numbers
--     42 bits  idle_at   the instant from which it reads as an idle caller's, in
--                        whole milliseconds before the end of the year 2109.
--                        Told backwards, so that text that somebody else has
--                        put there lies too far ahead to be a record of ours
--     46 bits  n         what this means is the algorithm's own business
--
-- Bytes and not text: three rules take 42 bytes, which Redis keeps in one
-- allocation with the object, and reading them is a third of the time. A value
-- that is no whole number of records (truncated, foreign) is an idle caller's,
-- and the next commit writes it anew.

local redis, type, unpack, ARGV, KEYS = redis, type, unpack, ARGV, KEYS
local floor, concat = math.floor, table.concat
local byte, char, find, format, gmatch, gsub, match, rep, sub =
  string.byte, string.char, string.find, string.format, string.gmatch, string.gsub, string.match, string.rep, string.sub

local RECORD, RECORD_LAYOUT, LAST_MS = 14, '>I4I4I3', 2 ^ 42 - 1

-- Three integers to bytes and back, by the struct library of Redis: a third of
-- the time of the same in Lua, which stands in where a server has no such
-- library. Of four bytes at most each, which is what it can on every machine.
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

-- ceil(a / b) for integers. By the remainder, as below: calling floor takes longer.
local function ceil_div(a, b)
  return (a + -a % b) / b
end

-- The first whole millisecond that is not before.
local function ceil_to_ms(microseconds)
  return microseconds + -microseconds % 1000
end

-- Where the record with this tag begins in a state, or nil. The bytes of a tag
-- can stand inside a record by chance, but not where a record begins.
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

-- idle_at (in microseconds again) and n of the record that begins at `at`.
local function read_record(state, at)
  local a, b, c = unpack_integers(RECORD_LAYOUT, state, at + 3)
  local b_low = b % 4194304
  return (LAST_MS - a * 1024 - (b - b_low) / 4194304) * 1000, b_low * 16777216 + c
end

-- The bytes of a record after its tag. idle_at is a whole number of milliseconds.
local function write_record(idle_at, n)
  local ms_left = LAST_MS - idle_at / 1000
  local ms_low, n_low = ms_left % 1024, n % 16777216
  return pack_integers(RECORD_LAYOUT, (ms_left - ms_low) / 1024, ms_low * 4194304 + (n - n_low) / 16777216, n_low)
end

-- ARGV has HEAD values, then FRAME values a rule (main.lua), the third of which
-- is the algorithm. Making a function takes time, so the bundle makes only those
-- that are asked for: it puts each algorithm's file under `if asked['its name']`.
local HEAD, FRAME = 6, 9

local algorithms, asked = {}, {}
for i = HEAD + 3, #ARGV, FRAME do
  asked[ARGV[i]] = true
end
