-- Checks and removes in one step, so that a member whose record is written at this moment stays in the index. KEYS: the index; then the records
-- of all members in turn, the same number for each. ARGV: the members.
local each = (#KEYS - 1) / #ARGV
for i, member in ipairs(ARGV) do
  if redis.call('EXISTS', unpack(KEYS, 2 + (i - 1) * each, 1 + i * each)) == 0 then
    redis.call('ZREM', KEYS[1], member)
  end
end
return 1
