-- Takes a chunk that the shard has out of the outbox, if it is still the first.
--
-- A: number (of the chunk).
register('ack_seeds', function(ctx, K, A)
  local head = redis.call('LINDEX', K.seeds_out, 0)
  if head and cmsgpack.unpack(head)[1] == A.number then redis.call('LPOP', K.seeds_out) end
end, {'allow-oom'})
