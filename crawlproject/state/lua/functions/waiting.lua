-- Says to which shards something is on its way, if it is this worker's turn to carry it.
--
-- A: worker; ttl (ms that its turn lasts); shards.
-- Reply: numbers of shards. To carry the same twice does no harm; the turns save the work.
register('waiting', function(ctx, K, A)
  local found = {}
  if (redis.call('GET', K.carrier) or A.worker) ~= A.worker then return found end
  for shard = 0, A.shards - 1 do
    if redis.call('EXISTS', K.outbox_of .. shard) == 1 then found[#found + 1] = shard end
  end
  if #found > 0 then redis.call('SET', K.carrier, A.worker, 'PX', A.ttl) end
  return found
end)
