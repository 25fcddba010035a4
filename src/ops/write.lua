-- Runs commands together, behind `audit()` (audited.ts). KEYS: all keys of the commands. ARGV: how many keys must have a text; each of them, and
-- its text, or an empty one for a key that must not exist, or '*' for one that must exist; then each command behind the number of its
-- arguments; `AUDIT` writes the entry of the audit trail. Reply: 1, or 0 if a key has another text.
local i = 2
for _ = 1, ARGV[1] + 0 do
  local text, wanted = redis.call('GET', ARGV[i]) or '', ARGV[i + 1]
  if text ~= wanted and (wanted ~= '*' or text == '') then return 0 end
  i = i + 2
end
while i <= #ARGV do
  local name, last = ARGV[i + 1], i + ARGV[i]
  if name == 'AUDIT' then
    audit()
  elseif name ~= 'DELETE-IF' then
    redis.call(unpack(ARGV, i + 1, last))
  elseif redis.call('GET', ARGV[i + 2]) == ARGV[i + 3] then
    redis.call('DEL', ARGV[i + 2])
  end
  i = last + 1
end
return 1
