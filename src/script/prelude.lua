-- What every script begins with.
--
-- All times are integers in microseconds, all amounts are integers; each stays
-- below 2^52 (the config check ensures it), where the double arithmetic of Lua
-- 5.1 is exact. tostring, .. and cjson keep 14 digits, so no number is written
-- with them.
--
-- STATE. All counters of one identity live in one string of records, one record
-- a rule, 14 bytes each, most significant bit first:
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
-- whose length is not a multiple of 14 (truncated, foreign) reads as idle, and
-- the next commit replaces it.
--
-- Integers to bytes and back, by the struct library of Redis. The same in Lua
-- takes three times as long and serves as a replacement on a server without that
-- library. Each integer has at most four bytes, which the library supports on
-- every machine.
local struct = rawget(_G, 'struct')
local pack_integers, unpack_integers
if struct then
  pack_integers, unpack_integers = struct.pack, struct.unpack
else
  pack_integers = function(layout, ...)
    local values, bytes, i = { ... }, '', 0
    for kind, width in string.gmatch(layout, '(%a)(%d)') do
      i = i + 1
      local value, digits = values[i], ''
      if kind == 'c' then
        digits = value
      else
        for _ = 1, width do
          digits = string.char(value % 256) .. digits
          value = math.floor(value / 256)
        end
      end
      bytes = bytes .. digits
    end
    return bytes
  end
  unpack_integers = function(layout, text, at)
    local values = {}
    at = at or 1
    for kind, width in string.gmatch(layout, '(%a)(%d)') do
      local value = 0
      if kind == 'c' then
        value = string.sub(text, at, at + width - 1)
        at = at + width
      else
        for _ = 1, width do
          value = value * 256 + string.byte(text, at)
          at = at + 1
        end
      end
      values[#values + 1] = value
    end
    return unpack(values)
  end
end

-- The instant of this run: the clock of this server, unless the test gives one.
if now == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now + 0
end
