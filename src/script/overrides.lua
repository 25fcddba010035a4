-- The numbers of rules as one consumer has them. The record of the consumer
-- (src/store/records.ts) holds overrides; the first of each family counts.
--   settings  the record, or false where there is none
--   returns   nil where there are none, else
--             override_of(family) -> mode, tag, rate, period, own, written_limit, written_burst
--             as text; '' leaves what the config says, and nothing is returned
--             where the family has no override, or its time has passed
local function overrides_in(settings, now)
  if not settings or not find(settings, 'override=', 1, true) then
    return nil
  end
  local places = {}
  for family, at in gmatch(settings, 'override=(...),()') do
    places[family] = places[family] or at
  end
  return function(family)
    local at = places[family]
    if at then
      local ends_at, mode, tag, rate, period, own, written_limit, written_burst =
        match(settings, '^(%d*),(%-?%d*),(%w*),(%d*),(%d*),(%d*),(%d*),(%d*)', at)
      if ends_at and (ends_at == '' or ends_at + 0 > now) then
        return mode, tag, rate, period, own, written_limit, written_burst
      end
    end
  end
end
