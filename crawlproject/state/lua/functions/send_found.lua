-- Sends what was found on pages to a shard that is away: it waits in the outbox until it can be brought there.
--
-- A: to (the number of that shard); kind (`links` or `requests`), body (packed), count (how many are in it); ways (how many
--    they have come then); most (how many may wait here, whatever shards they are for; none: no bound); shard; shards.
-- Reply: 1, or 0 when there is no room, and nothing was done.
--
-- To send the same twice does no harm: it is deduped where it arrives (state/found_elsewhere.py).
register('send_found', function(ctx, K, A)
  local waiting = math.max(tonumber(redis.call('HGET', K.crossings, 'found')) or 0, 0)
  if A.most and waiting + A.count > A.most then
    local keys = {}
    for shard = 0, A.shards - 1 do keys[#keys + 1] = K.outbox_of .. shard end
    if redis.call('EXISTS', unpack(keys)) > 0 or A.count > A.most then return 0 end
    waiting = 0 -- others have removed them
  end
  shards.send(ctx, A.to, A.kind, A.body, nil, nil, nil, nil, A.ways, A.count)
  redis.call('HSET', K.crossings, 'found', text(waiting + A.count))
  return 1
end)
