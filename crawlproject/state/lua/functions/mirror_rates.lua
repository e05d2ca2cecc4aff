-- Takes over the rates that operators have written to keys in slots of their own, on a Redis Cluster.
--
-- A: fence; sources (500 at most); values (of each, as it is written; '': none).
-- Reply: 0 when another leads by now, else 1.
--
-- `told` has what was taken over last. Only what differs from it changes the shard's own key: a rate that was written to that
-- one instead stays until the operators' key changes.
register('mirror_rates', function(ctx, K, A)
  if tonumber(redis.call('GET', K.fence) or 0) ~= A.fence then return 0 end
  local told = K.told_of .. 'override_rate'
  local before = redis.call('HMGET', told, unpack(A.sources))
  for index, source in ipairs(A.sources) do
    local value = A.values[index]
    if value == '' and before[index] then
      redis.call('DEL', K.override_rate_of .. source)
      redis.call('HDEL', told, source)
    elseif value ~= '' and value ~= before[index] then
      redis.call('SET', K.override_rate_of .. source, value)
      redis.call('HSET', told, source, value)
    end
  end
  return 1
end, {'allow-oom'})
