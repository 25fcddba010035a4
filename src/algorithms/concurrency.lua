-- Concurrency: at most `limit` units in flight. Model: concurrency.ts, with the same
-- sections. docs/internals/concurrency.md has the proof.
--
-- With each request, an isolate sends the units that it holds for the identity as two
-- numbers that only grow: started and ended. The key of the rule has one record for
-- each isolate, with the largest numbers of its latest epoch that have arrived. Units
-- that are admitted are added to `started`. The units in flight are the sum of
-- started - ended. A message may be lost, repeated or late, because the next one
-- repeats both numbers.
--
-- A record expires `period` after the last message. Units of requests without a
-- holding belong to NO_HOLDER and expire together, `period` after the last of them was
-- admitted.
--
-- A record has HOLDER_BYTES bytes: holder, epoch, started, ended, and the time at which
-- it expires, in ms. The state of the identity has no record of this rule.
--
-- If the records take more than FEW_BYTES, a summary of HOLDER_BYTES precedes them: the
-- units in flight, and two instants, in ms. Before the first instant, no record with
-- units in flight expires. After the second, no record is left. Until the first instant,
-- the sum is taken from the summary, and only the record of this holder is read; until
-- then, expired records without units stay. A refusal also reads the others, to find out
-- when enough units expire. If the key has more than MANY_BYTES, a refusal does not
-- read them, and records are written in place. Each write is one command, which may be
-- billed.
--
-- holding: '<holder> <epoch> <started> <ended>', or ''. A fifth number is the current
-- value of an adaptive limit.
--@ numbers limit, period, holding, side_key
--@ keeps records, own_at, has_expired, others, holder, epoch, started, ended, capacity, expires_at, is_counted, in_flight, first_at, last_at, first_expiry, is_summed, last_expiry, last_use

--@ declare
-- Holder, epoch, started, ended and expiry (µs) of the record that begins at byte `at`.
local function read_holder(records, at)
  local holder, epoch, started, ended, high, low = unpack_integers('>c8I4I3I3I2I4', records, at)
  return holder, epoch, started, ended, (high * 4294967296 + low) * 1000
end

-- The position of a holder's record after the summary. Without a record: 0.
local function find_holder(records, holder)
  local at = string.find(records, holder, 25, true)
  while at and at % 24 ~= 1 do
    at = string.find(records, holder, at + 1, true)
  end
  return at or 0
end

-- The units in flight and the two instants (µs) of the summary; nil if no summary precedes the records.
local function read_summary(records)
  local a, b, c, d, e, f, mark = unpack_integers('>I2I4I2I4I2I4c6', records)
  if mark == 'SUMMED' then
    return a * 4294967296 + b, (c * 4294967296 + d) * 1000, (e * 4294967296 + f) * 1000
  end
end

local function summary_of(in_flight, first, last)
  local b, d, f = in_flight % 4294967296, first / 1000 % 4294967296, last / 1000 % 4294967296
  local a, c, e = in_flight - b, first / 1000 - d, last / 1000 - f
  return pack_integers('>I2I4I2I4I2I4c6', a / 4294967296, b, c / 4294967296, d, e / 4294967296, f, 'SUMMED')
end

-- The records of other holders that have not expired.
local function alive(records, first_at, holder, now, period)
  local kept = {}
  for at = first_at, #records, 24 do
    local other, _, _, _, its_expiry = read_holder(records, at)
    if other ~= holder and its_expiry > now and its_expiry <= now + 2 * period then
      kept[#kept + 1] = string.sub(records, at, at + 23)
    end
  end
  return table.concat(kept)
end

--@ read
holder, epoch, started, ended, capacity = NO_HOLDER, 0, 0, 0, limit
if holding ~= '' then
  local adapted
  holder, epoch, started, ended, adapted = match(holding, '^(%w+) (%d+) (%d+) (%d+) ?(%d*)$')
  epoch, started, ended = epoch + 0, started + 0, ended + 0
  if adapted ~= '' then
    capacity = adapted + 0
  end
  if started > MAX_UNITS then
    -- Units that do not fit count as far as they fit, so the record is full.
    started, ended = MAX_UNITS, ended > started - MAX_UNITS and ended - started + MAX_UNITS or 0
  end
end
records = values[side_key] or ''
if #records % HOLDER_BYTES ~= 0 then
  records = ''
end
own_at, has_expired, others, is_counted, in_flight, last_expiry, last_use = nil, false, 0, false, 0, 0, 0
expires_at = floor_div(now + period, 1000) * 1000
first_at, last_at, first_expiry, is_summed = 1, #records, expires_at, false
if #records > FEW_BYTES then
  local sum, first, last = read_summary(records)
  first_at = sum and HOLDER_BYTES + 1 or 1
  -- No record with units in flight has expired, so the sum is valid.
  if sum and first > now and last <= now + 2 * period then
    is_summed, in_flight, first_expiry, last_expiry, last_use = true, sum, first, last, last
    last_at = find_holder(records, holder)
    others = #records / HOLDER_BYTES - (last_at > 0 and 2 or 1)
  end
end
for at = is_summed and last_at > 0 and last_at or first_at, last_at, HOLDER_BYTES do
  local other, its_epoch, its_started, its_ended, its_expiry = read_holder(records, at)
  if other == holder then
    own_at = at
    in_flight = is_summed and in_flight - its_started + its_ended or in_flight
  end
  -- A record that expires impossibly late was written by a clock that was far ahead.
  if its_expiry <= now or its_expiry > now + 2 * period then
    has_expired = not is_summed
  elseif other == holder then
    if holding == '' then
      started, expires_at = its_started - its_ended, its_expiry
    elseif its_epoch > epoch then
      epoch, started, ended, is_counted = its_epoch, its_started, its_ended, true
    elseif its_epoch == epoch then
      started = its_started > started and its_started or started
      ended = its_ended > ended and its_ended or ended
    end
  else
    others, in_flight = others + 1, in_flight + its_started - its_ended
    last_use = its_expiry > last_use and its_expiry or last_use
    if its_started > its_ended then
      last_expiry = its_expiry > last_expiry and its_expiry or last_expiry
      first_expiry = its_expiry < first_expiry and its_expiry or first_expiry
    end
  end
end
in_flight = in_flight + started - ended
first_expiry = expires_at < first_expiry and expires_at or first_expiry

--@ check
local added = is_counted and 0 or cost
if cost > capacity then
  retry_after = -1
elseif #records > MANY_BYTES and (in_flight + added > capacity or started + added > MAX_UNITS) then
  -- An upper bound: the time until the last record has expired.
  retry_after = (expires_at > last_use and expires_at or last_use) - now
elseif in_flight + added > capacity or started + added > MAX_UNITS then
  -- What the record cannot count is refused. An isolate begins a new epoch long before.
  -- The time until enough records have expired, if no request ends before and no record
  -- is renewed.
  local instants, units_at = { expires_at }, { [expires_at] = started - ended }
  for at = first_at, #records, HOLDER_BYTES do
    local other, _, its_started, its_ended, its_expiry = read_holder(records, at)
    if other ~= holder and its_expiry > now and its_expiry <= now + 2 * period then
      if not units_at[its_expiry] then
        instants[#instants + 1], units_at[its_expiry] = its_expiry, 0
      end
      units_at[its_expiry] = units_at[its_expiry] + its_started - its_ended
    end
  end
  sort(instants)
  local excess, i = in_flight + added - capacity, 0
  repeat
    i = i + 1
    excess = excess - units_at[instants[i]]
  until excess <= 0 or i == #instants
  retry_after = instants[i] - now
end

--@ spend
if not is_counted then
  started, in_flight = started + cost, in_flight + cost
end
expires_at = floor_div(now + period, 1000) * 1000

--@ refund
-- The units of an isolate are given back by its next message.
if holding == '' then
  local back = units < started - ended and units or started - ended
  started, in_flight = started - back, in_flight - back
end

--@ standing
remaining = in_flight < capacity and capacity - in_flight or 0
local last = started > ended and expires_at > last_expiry and expires_at or last_expiry
reset_after = in_flight > 0 and last - now or 0

--@ write
idle_at, n = expires_at > last_use and expires_at or last_use, 0
side_bytes = nil
local is_in_place = is_summed and own_at and #records > MANY_BYTES and floor_div(idle_at, 1000000) == floor_div(last_use, 1000000)
if is_in_place then
  -- Writes the summary and the record in place, which is faster than writing all. One
  -- command does both. It does not extend the TTL of the key. So if `idle_at` has moved to a
  -- later second, everything is written. So it is if the user may not run this command.
  local number, bits = '%.0f', own_at * 8
  is_in_place = not redis.pcall(
    'BITFIELD', KEYS[side_key],
    'SET', 'u48', 0, format(number, in_flight),
    'SET', 'u48', 48, format(number, first_expiry / 1000),
    'SET', 'u48', 96, format(number, idle_at / 1000),
    'SET', 'u32', bits + 56, format(number, epoch),
    'SET', 'u24', bits + 88, format(number, started),
    'SET', 'u24', bits + 112, format(number, ended),
    'SET', 'u48', bits + 136, format(number, expires_at / 1000)
  ).err
end
if not is_in_place then
  local low = expires_at / 1000 % 4294967296
  local high = (expires_at / 1000 - low) / 4294967296
  local own = pack_integers('>c8I4I3I3I2I4', holder, epoch, started, ended, high, low)
  if has_expired then
    side_bytes = own .. alive(records, first_at, holder, now, period)
  else
    local at = own_at or #records + 1
    side_bytes = sub(records, first_at, at - 1) .. own .. sub(records, at + HOLDER_BYTES)
  end
  if #side_bytes > FEW_BYTES then
    side_bytes = summary_of(in_flight, first_expiry, idle_at) .. side_bytes
  end
end
