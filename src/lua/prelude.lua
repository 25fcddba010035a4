-- Shared by every algorithm and by main.lua. All times are integers in
-- microseconds, all amounts are integers; each stays below 2^52 (the config
-- check sees to it), where the double arithmetic of Lua 5.1 is exact.
--
-- STATE. All counters of one identity live in one string:
--
--     ;<tag>:<idle_at>[:<n>];<tag>:<idle_at>[:<n>];
--
-- One record a rule. The tag, four letters or digits, says whose record it is (rule name, algorithm and
-- period, hashed: config/compile.ts), so a rule never reads another's numbers.
-- idle_at is the instant from which the record reads as an idle caller's; what
-- n means is the algorithm's own business. A record that cannot be read (a
-- truncated or foreign value) is an idle caller's too, and the next commit
-- writes it anew.

local floor, max = math.floor, math.max
local find, format, gmatch, match = string.find, string.format, string.gmatch, string.match

local algorithms = {}

-- ceil(a / b) for integers; exact where a / b is below 2^52.
local function ceil_div(a, b)
  return -floor(-a / b)
end

-- Numbers go to Redis as text of our own making: tostring and the conversion
-- inside redis.call keep 14 digits, and a microsecond of today has 16.
local function integer(n)
  return format('%.0f', n)
end

-- The records of one state string, by tag: { idle_at, n }. Nil or foreign text
-- gives no records.
local function read_state(value)
  local records = {}
  for tag, idle_at, n in gmatch(value or '', ';(%w%w%w%w):(%d+):?(%d*)%f[;]') do
    records[tag] = { tonumber(idle_at), tonumber(n) or 0 }
  end
  return records
end

-- No record of ours reaches further ahead than this.
local HORIZON = 2 ^ 52

-- The string to store, and the instant from which all of it reads as idle.
-- Records that read as idle are left out: this is how rules that were removed
-- from the config disappear. So are impossible ones.
local function write_state(records, now)
  local text, last = '', now
  for tag, record in pairs(records) do
    local idle_at, n = record[1], record[2]
    if idle_at > now and idle_at - now < HORIZON then
      text = text .. ';' .. tag .. ':' .. integer(idle_at)
      if n > 0 then
        text = text .. ':' .. integer(n)
      end
      last = max(last, idle_at)
    end
  end
  return text .. ';', last
end
