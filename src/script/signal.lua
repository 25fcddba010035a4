-- The measurements of an origin that all isolates share (how busy its workers are, how fast it answers), in windows of
-- a second. src/script/signal.ts encodes the arguments and decodes the replies.
--
--   KEYS[1]  the signal: windows, the state of the controller, and the mean of the pushes
--   KEYS[2]  reporters, only for a push: a hash with `<thousandths> <µs>` for each machine
--   ARGV[1]  'report', 'peek' or 'push'
--   ARGV[2]  now in microseconds, or '' for the clock of this server
--
-- report, sent by an isolate:
--   ARGV[3]  length of a window in ms
--   ARGV[4]  number of sums
--   ARGV     then the sums of this isolate since its last report;
--            then, if the isolate has computed a state of the controller, the window after which it is valid, and the state
--   reply    { now, number of the last closed window or -1, its sums…, window of the
--              latest state or -1, that state, mean of the pushes when the window
--              closed or -1, number of reporters in that mean }
--
-- peek, sent by an operator: like a report of zeros, but writes nothing. A report of
--   zeros could end a window before an isolate has read it.
--
-- push, sent by a machine of the origin:
--   ARGV[3]  name of the reporter
--   ARGV[4]  its value in thousandths
--   ARGV[5]  after how many ms without another push the value no longer counts
--   ARGV[6]  absent: the mean of the values counts. Otherwise the value that this share of the machines reaches; 0: the highest one
--   reply    { now, mean of the pushes, number of reporters in that mean }
--
-- A window has the number floor(now / length). KEYS[1] is
--
--   <open>;<its sums>;<closed>;<its sums>;<its mean>;<reporters>;<window of the state>;<state>|<mean> <µs> <stale after µs> <reporters>
--
-- Parts that cannot be parsed count as missing.
local KEPT_SECONDS, MAX_BYTES, MAX_NUMBER = 3600, 2048, 4503599627370496
local MAX_REPORTERS, MORE_REPORTERS, FEW_REPORTERS, MEAN_EVERY = 1000, 100, 20, 200000

local function integer(number)
  return string.format('%.0f', number)
end

-- The integers in a text; nil if there are not `count` of them, or if one is too large.
local function integers(text, count)
  local numbers = {}
  for digits in string.gmatch(text or '', '%d+') do
    if digits + 0 > MAX_NUMBER then
      return nil
    end
    numbers[#numbers + 1] = digits + 0
  end
  return #numbers == count and numbers or nil
end

local function joined(numbers)
  local texts = {}
  for i = 1, #numbers do
    texts[i] = integer(numbers[i])
  end
  return table.concat(texts, ' ')
end

-- MGET and not GET, because MGET treats a key of another type as missing.
local text = redis.call('MGET', KEYS[1])[1] or ''
local windows, pushes = string.match(#text < MAX_BYTES and text or '', '^([^|]*)|([^|]*)$')
local pushed = integers(pushes, 4)
-- The mean stays fresh if the clock was set back a little, for example by a failover.
local is_fresh = pushed and math.abs(now - pushed[2]) < pushed[3]
if not is_fresh or pushed[1] > 1000 or pushed[4] > MAX_REPORTERS then
  pushed = nil
end

if ARGV[1] == 'push' then
  local reporter, stale_after = ARGV[3], ARGV[5] * 1000
  local entry = ARGV[4] .. ' ' .. integer(now)
  local written = redis.pcall('HSET', KEYS[2], reporter, entry)
  if type(written) == 'table' then
    if not string.find(written.err, 'WRONGTYPE', 1, true) then
      error(written.err)
    end
    redis.call('DEL', KEYS[2])
    redis.call('HSET', KEYS[2], reporter, entry)
  end
  redis.call('EXPIRE', KEYS[2], KEPT_SECONDS)
  -- Computing the mean reads all reporters, which takes a microsecond each. With many reporters a single push hardly
  -- changes the mean, so it is computed five times a second. Meanwhile there can be a few reporters above the maximum.
  local size = redis.call('HLEN', KEYS[2])
  local is_recent = pushed and pushed[2] <= now and now - pushed[2] < MEAN_EVERY
  if is_recent and size > FEW_REPORTERS and size <= MAX_REPORTERS + MORE_REPORTERS then
    return { now, pushed[1], pushed[4] }
  end
  local match = string.match
  local all, gone, fresh, total, values = redis.call('HGETALL', KEYS[2]), {}, 0, 0, {}
  for i = 1, #all, 2 do
    local value, at = match(all[i + 1], '^(%d+) (%d+)$')
    local age = at and now - at or stale_after
    if age < stale_after and -age < stale_after and value + 0 <= 1000 then
      fresh, total = fresh + 1, total + value
      values[fresh] = value + 0
    else
      gone[#gone + 1], all[i + 1] = all[i], false
    end
  end
  if fresh > MAX_REPORTERS then
    local kept = {}
    for i = 1, #all, 2 do
      if all[i + 1] then
        local value, at = match(all[i + 1], '^(%d+) (%d+)$')
        kept[#kept + 1] = { name = all[i], value = value, at = at + 0 }
      end
    end
    table.sort(kept, function(one, other)
      return one.at < other.at
    end)
    for i = 1, fresh - MAX_REPORTERS do
      gone[#gone + 1], total = kept[i].name, total - kept[i].value
    end
    fresh = MAX_REPORTERS
  end
  for first = 1, #gone, 1000 do
    redis.call('HDEL', KEYS[2], unpack(gone, first, math.min(first + 999, #gone)))
  end
  local mean = math.floor(total / fresh + 0.5)
  if ARGV[6] then
    -- The addend keeps binary rounding errors of the share from asking for one machine more.
    table.sort(values)
    mean = values[#values + 1 - math.max(1, math.ceil(ARGV[6] * #values - 1e-6))]
  end
  local written = (windows or '') .. '|' .. joined({ mean, now, stale_after, fresh })
  redis.call('SETEX', KEYS[1], KEPT_SECONDS, written)
  return { now, mean, fresh }
end

local length, count = ARGV[3] * 1000, ARGV[4] + 0
local current = (now - now % length) / length
local open, open_sums, closed, closed_sums, mean, reporters, state_at, state = string.match(
  windows or '',
  '^(%d+);([%d ]*);(%-?%d+);([%d ]*);(%-?%d+);(%d+);(%-?%d+);([%w .%-]*)$'
)
open, state_at, reporters = (open or -1) + 0, (state_at or -1) + 0, (reporters or 0) + 0
closed, mean = math.max(-1, closed or -1), math.max(-1, mean or -1)
local sums, last = integers(open_sums, count), integers(closed_sums, count)
-- After the clock was set back, the windows and the state can belong to the future. Then the windows start from zero. The
-- state is kept, as if it belonged to the window before the current one.
local is_back = open > current
if not sums or not last or is_back or closed >= open or mean > 1000 or reporters > MAX_REPORTERS then
  open, closed, mean, reporters = current, -1, -1, 0
  sums, last = {}, {}
  for i = 1, count do
    sums[i], last[i] = 0, 0
  end
end
if state_at >= current then
  state_at = is_back and current - 1 or -1
end
if state_at < 0 then
  state_at, state = -1, ''
end

if current > open then
  open, closed, last, sums = current, open, sums, {}
  mean, reporters = pushed and pushed[1] or -1, pushed and pushed[4] or 0
end
for i = 1, count do
  sums[i] = math.min((sums[i] or 0) + ARGV[4 + i], MAX_NUMBER)
end
local sent_at = ARGV[5 + count]
if sent_at and sent_at + 0 > state_at and sent_at + 0 < current then
  state_at, state = sent_at + 0, ARGV[6 + count]
end

if ARGV[1] == 'report' then
  local written = { integer(open), joined(sums), integer(closed), joined(last), integer(mean), integer(reporters), integer(state_at), state }
  redis.call('SETEX', KEYS[1], KEPT_SECONDS, table.concat(written, ';') .. '|' .. (pushed and pushes or ''))
end

local reply = { now, closed }
for i = 1, count do
  reply[2 + i] = last[i]
end
for _, value in ipairs({ state_at, state, mean, reporters }) do
  reply[#reply + 1] = value
end
return reply
