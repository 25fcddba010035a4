-- Applies the overrides of a consumer. The record of the consumer
-- (src/store/records.ts) ends with fields `override=<family>,…`, the first of them at
-- `overrides_at`. The first override of each family counts until it expires. Every value
-- in the record is escaped, so that it cannot contain `=`. A search that begins with `=`
-- stops at each field only once. An empty field leaves the number of the config.
--
--   overridden(number, family, mark, tag, first, second, third)
--       returns the mark, the tag and the three numbers of a rule after its override,
--       and if it has other numbers, its limit and burst as the operator wrote them.
--       Adds the override to `changes`, for the reply: `1e20,5;` (number of the rule,
--       mark, limit and burst as the operator wrote them)
local function overridden(number, family, mark, tag, first, second, third)
  local _, at = string.find(settings, family, overrides_at, true)
  if not at or mark == ABSENT then
    return mark, tag, first, second, third
  end
  local ends_at, mode, own_tag, rate, period, burst_or_step, written =
    string.match(settings, '^(%d*),(%-?%d*),(%w*),(%d*),(%d*),(%d*),(%d*,%d*)', at + 1)
  if not ends_at or ends_at ~= '' and ends_at + 0 <= now then
    return mark, tag, first, second, third
  end
  if rate ~= '' then
    tag, first = own_tag, rate + 0
    second = period ~= '' and period + 0 or second
    third = burst_or_step ~= '' and burst_or_step + 0 or third
  end
  if mode ~= '' and mark ~= STAYS_SHADOW then
    mark = mode == '1' and ENFORCE or mode == '0' and SHADOW or ABSENT
  end
  changes = (changes or '') .. number .. (mark == ENFORCE and 'e' or 's') .. written .. ';'
  return mark, tag, first, second, third, rate ~= '' and written
end
