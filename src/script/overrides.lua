-- The numbers of rules as one consumer has them. The record of the consumer
-- (src/store/records.ts) holds overrides; the first of each family counts.
--
--   override_of(family) -> mode, tag, rate, period, own, limit, burst
--       as text; '' leaves what the config says, and nothing is returned where the
--       family has no override, or its time has passed
local places = {}
for family, at in string.gmatch(settings, 'override=(...),()') do
  places[family] = places[family] or at
end
override_of = function(family)
  local at = places[family]
  if at then
    local ends_at, mode, tag, rate, period, own, limit, burst =
      string.match(settings, '^(%d*),(%-?%d*),(%w*),(%d*),(%d*),(%d*),(%d*),(%d*)', at)
    if ends_at and (ends_at == '' or ends_at + 0 > now) then
      return mode, tag, rate, period, own, limit, burst
    end
  end
end
