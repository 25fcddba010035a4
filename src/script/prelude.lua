-- The beginning of every script.
--
-- All times are integers in microseconds, and all amounts are integers. Each stays
-- below 2^52 (the config check ensures it), where the double arithmetic of Lua
-- 5.1 is exact. tostring, .. and cjson keep only 14 digits, so numbers are not
-- formatted with them.
--
-- STATE. All counters of one identity are in one string of records. Each rule has
-- one record of 14 bytes, most significant bit first:
--
--     3 bytes  tag       the rule that the record belongs to: a hash of its name,
--                        its algorithm and the numbers that its state depends on
--                        (config/compile-rule.ts). So a rule never reads the
--                        numbers of another one
--     42 bits  idle_at   the instant at which the caller is idle again, in whole
--                        milliseconds before 15 May 2109 (2^42 ms). It is
--                        counted backwards, so that text from another program
--                        decodes to an instant too far in the future to be valid
--     46 bits  n         defined by the algorithm
--
-- A pause of a limit by name is such a record as well (pause.lua). Its tag is ~p~, which no rule can have.
--
-- The state is bytes and not text, because three rules then take 42 bytes, which
-- Redis stores in one allocation with the object, and which are read in a third of
-- the time. A value whose length is not a multiple of 14 (truncated, or from
-- another program) counts as idle, and the next commit replaces it.
--
-- The struct library of Redis packs and unpacks the integers. On a server without
-- that library, Lua code replaces it, which takes three times as long. Each integer
-- has at most four bytes, which the library supports on every machine.
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
        digits = string.sub(value, 1, width)
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

-- The time of this run: the clock of this server, unless a test passes another one.
if now == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now + 0
end
