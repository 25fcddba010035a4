-- Shared by every algorithm and by main.lua. All times are integers in
-- microseconds, all amounts are integers; each stays below 2^52 (the config
-- check sees to it), where the double arithmetic of Lua 5.1 is exact.
--
-- STATE. All counters of one identity live in one string of records, one record
-- a rule, RECORD bytes each, most significant byte first:
--
--     3  tag       whose record it is: rule name, algorithm and period, hashed
--                  (config/compile.ts), so that no rule reads another's numbers
--     7  idle_at   the instant from which it reads as an idle caller's
--     4  n         what this means is the algorithm's own business
--
-- Bytes and not text: three rules take 42 bytes, which Redis keeps in one
-- allocation with the object, and reading them is a third of the time. A value
-- that is no whole number of records (truncated, foreign) is an idle caller's,
-- and the next commit writes it anew.

local redis, unpack = redis, unpack
local floor = math.floor
local byte, char, find, format, match, sub =
  string.byte, string.char, string.find, string.format, string.match, string.sub

local algorithms = {}

local RECORD = 14

-- No record of ours reaches further ahead than this.
local HORIZON = 2 ^ 52

-- ceil(a / b) for integers; exact where a / b is below 2^52.
local function ceil_div(a, b)
  return -floor(-a / b)
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

-- idle_at and n of the record that begins at `at`.
local function read_record(state, at)
  local a, b, c, d, e, f, g, h, i, j, k = byte(state, at + 3, at + 13)
  return (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g,
    ((h * 256 + i) * 256 + j) * 256 + k
end

-- The bytes of a record after its tag.
local function write_record(idle_at, n)
  local abcd = floor(idle_at / 16777216)
  local efg = idle_at - abcd * 16777216
  local abc, ab, a = floor(abcd / 256), floor(abcd / 65536), floor(abcd / 16777216)
  local ef, e = floor(efg / 256), floor(efg / 65536)
  local hij, hi, h = floor(n / 256), floor(n / 65536), floor(n / 16777216)
  return char(
    a, ab - a * 256, abc - ab * 256, abcd - abc * 256, e, ef - e * 256, efg - ef * 256,
    h, hi - h * 256, hij - hi * 256, n - hij * 256
  )
end
