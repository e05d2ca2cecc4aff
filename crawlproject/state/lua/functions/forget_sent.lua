-- Takes what a shard has out of the outbox.
--
-- A: to (the number of the shard); taken (server -> the number of the last one of its that the shard has); shards.
-- Reply: how many there were. The shard may have more than is here: after a power cut this one has forgotten what it sent last.
register('forget_sent', function(ctx, K, A)
  local key, count, requests, found = K.outbox_of .. A.to, 0, 0, 0
  while true do
    local packed = redis.call('LINDEX', key, 0)
    local item = packed and shards.item_in(packed)
    if not item or item.number > (A.taken[item.server] or 0) then break end
    redis.call('LPOP', key)
    count = count + 1
    if item.kind == 'request' then requests = requests + 1 end
    found = found + item.count
  end
  if requests > 0 then redis.call('DECRBY', K.outstanding, requests) end
  if found > 0 then
    local waiting = tonumber(redis.call('HGET', K.crossings, 'found')) or 0
    redis.call('HSET', K.crossings, 'found', text(math.max(waiting - found, 0)))
  end
  return count
end, {'allow-oom'})
