-- Only the store knows the consumer. Its name replaces the '?' in the keys.
consumer = redis.call('GET', KEYS[3]) or nil
for i = 1, consumer and #KEYS or 0 do
  KEYS[i] = string.gsub(KEYS[i], '{c:%?}', function()
    return '{c:' .. consumer .. '}'
  end)
end
