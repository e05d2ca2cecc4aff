-- Forgets a batch that another shard has taken.
--
-- A: to (the number of that shard); name (of the batch). One of another name stays: this call is late.
register('forget_batch', function(ctx, K, A)
  local batch = K.batch_of .. A.to
  if redis.call('LINDEX', batch, 0) == A.name then redis.call('DEL', batch) end
end, {'allow-oom'})
