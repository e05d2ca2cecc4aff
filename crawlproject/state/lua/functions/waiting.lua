-- Says for which shards something waits, if it is this worker's turn to forward it.
--
-- A: worker; ttl (ms that its turn lasts); shards.
-- Reply: numbers of shards. To forward the same twice does no harm; the turns save the work.
register('waiting', function(ctx, K, A)
  local found = {}
  if (redis.call('GET', K.forwarder) or A.worker) ~= A.worker then return found end
  for shard = 0, (A.shards or 1) - 1 do
    if redis.call('EXISTS', K.foreign_of .. shard, K.batch_of .. shard) > 0 then found[#found + 1] = shard end
  end
  if #found > 0 then redis.call('SET', K.forwarder, A.worker, 'PX', A.ttl) end
  return found
end, {'allow-oom'})
