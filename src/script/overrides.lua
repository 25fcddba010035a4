-- The numbers of rules as one consumer has them. The record of the consumer
-- (src/store/records.ts) holds overrides, `override=<family>,…`; the first of each
-- family counts. Every value in the record is escaped, so that none can hold a `=`.
--
--   override_of(family) -> mode, tag, rate, period, own, written
--       as text; '' leaves what the config says, `written` is the limit and the
--       burst as an operator wrote them, and nothing is returned where the family
--       has no override, or its time has passed
override_of = function(family)
  local _, at = string.find(settings, family, 1, true)
  if at then
    local ends_at, mode, tag, rate, period, own, written =
      string.match(settings, '^(%d*),(%-?%d*),(%w*),(%d*),(%d*),(%d*),(%d*,%d*)', at + 1)
    if ends_at and (ends_at == '' or ends_at + 0 > now) then
      return mode, tag, rate, period, own, written
    end
  end
end
