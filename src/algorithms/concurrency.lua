-- Concurrency: at most `limit` units in flight. Model: concurrency.ts, with the same
-- sections. docs/concurrency.md has the proof.
--
-- With each request an isolate sends what it holds of the identity: two numbers that
-- grow, started and ended. The key of the rule holds one record for each isolate,
-- with the largest numbers of its latest epoch that have arrived, and `started` grows
-- by what is admitted. In flight is the sum of started - ended. So a message may be
-- lost, repeated, or arrive late: the next one has it all again.
--
-- A record expires `period` after the last message. Without a holding, units belong
-- to NO_HOLDER and expire together, `period` after the last of them was admitted.
--
-- HOLDER_BYTES a record, in this order: holder, epoch, started, ended, and when it
-- expires, in ms. The state of the identity has no record of this rule.
--
-- holding: '<holder> <epoch> <started> <ended>', or ''.
--@ numbers limit, period, holding, own_key
--@ keeps records, own_at, has_expired, holder, epoch, started, ended, expires_at, is_counted, in_flight, last_expiry, last_use

--@ declare
local HOLDER_BYTES, HOLDER_LAYOUT, NO_HOLDER = 24, '>c8I4I3I3I2I4', 'noholder'

-- Holder, epoch, started, ended and expiry (µs) of the record that begins at a byte.
local function read_holder(records, at)
  local holder, epoch, started, ended, high, low = unpack_integers(HOLDER_LAYOUT, records, at)
  return holder, epoch, started, ended, (high * 4294967296 + low) * 1000
end

--@ read
holder, epoch, started, ended = NO_HOLDER, 0, 0, 0
if holding ~= '' then
  holder, epoch, started, ended = match(holding, '^(%w+) (%d+) (%d+) (%d+)$')
  epoch, started, ended = epoch + 0, started + 0, ended + 0
end
records = values[own_key] or ''
if #records % HOLDER_BYTES ~= 0 then
  records = ''
end
own_at, has_expired, is_counted, in_flight, last_expiry, last_use = nil, false, false, 0, 0, 0
expires_at = floor_div(now + period, 1000) * 1000
for at = 1, #records, HOLDER_BYTES do
  local other, its_epoch, its_started, its_ended, its_expiry = read_holder(records, at)
  -- One that expires much later than a record can is of a clock that was far ahead.
  if its_expiry <= now or its_expiry > now + 2 * period then
    has_expired = true
  elseif other == holder then
    own_at = at
    if holding == '' then
      started, expires_at = its_started - its_ended, its_expiry
    elseif its_epoch > epoch then
      epoch, started, ended, is_counted = its_epoch, its_started, its_ended, true
    elseif its_epoch == epoch then
      started = its_started > started and its_started or started
      ended = its_ended > ended and its_ended or ended
    end
  else
    in_flight = in_flight + its_started - its_ended
    last_use = its_expiry > last_use and its_expiry or last_use
    last_expiry = its_started > its_ended and its_expiry > last_expiry and its_expiry or last_expiry
  end
end
in_flight = in_flight + started - ended

--@ check
local added = is_counted and 0 or cost
if cost > limit then
  retry_after = -1
elseif in_flight + added > limit then
  -- An upper bound: when so many records have expired that there is room, if no
  -- request ends before and none is renewed.
  local expiries = { { expires_at, started - ended } }
  for at = 1, #records, HOLDER_BYTES do
    local other, _, its_started, its_ended, its_expiry = read_holder(records, at)
    if other ~= holder and its_expiry > now and its_expiry <= now + 2 * period then
      expiries[#expiries + 1] = { its_expiry, its_started - its_ended }
    end
  end
  sort(expiries, function(a, b)
    return a[1] < b[1]
  end)
  local left, i = in_flight, 0
  repeat
    i = i + 1
    left = left - expiries[i][2]
  until left + added <= limit or i == #expiries
  retry_after = (left + added <= limit and expiries[i][1] or expires_at) - now
end

--@ spend
if not is_counted then
  started, in_flight = started + cost, in_flight + cost
end
expires_at = floor_div(now + period, 1000) * 1000

--@ refund
-- What an isolate holds is given back by its next message.
if holding == '' then
  local back = units < started - ended and units or started - ended
  started, in_flight = started - back, in_flight - back
end

--@ standing
remaining = in_flight < limit and limit - in_flight or 0
local last = started > ended and expires_at > last_expiry and expires_at or last_expiry
reset_after = in_flight > 0 and last - now or 0

--@ write
idle_at, n = expires_at > last_use and expires_at or last_use, 0
local low = expires_at / 1000 % 4294967296
local own = pack_integers(HOLDER_LAYOUT, holder, epoch, started, ended, (expires_at / 1000 - low) / 4294967296, low)
if has_expired then
  own_bytes = own
  for at = 1, #records, HOLDER_BYTES do
    local other, _, _, _, its_expiry = read_holder(records, at)
    if other ~= holder and its_expiry > now and its_expiry <= now + 2 * period then
      own_bytes = own_bytes .. sub(records, at, at + HOLDER_BYTES - 1)
    end
  end
elseif own_at then
  own_bytes = sub(records, 1, own_at - 1) .. own .. sub(records, own_at + HOLDER_BYTES)
else
  own_bytes = records .. own
end
