-- Checks and removes in one step, so that a key that was imported again in the meantime stays in the index. KEYS: the index, the records.
-- ARGV: their digests.
for i, digest in ipairs(ARGV) do
  if redis.call('EXISTS', KEYS[i + 1]) == 0 then
    redis.call('ZREM', KEYS[1], digest)
  end
end
return 1
