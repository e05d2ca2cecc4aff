-- Returns the seeds that users have pushed and that come next, the first one at the head; they stay where they are.
--
-- A: worker; ttl (ms that it is the one that divides them); count, size (seeds, and bytes beyond which there is no further one).
-- Reply: seeds; none while it is another worker's turn.
register('peek_seeds', function(ctx, K, A)
  if (redis.call('GET', K.forwarder) or A.worker) ~= A.worker then return {} end
  local found = seed_list.peek(K.users_seeds, K.foreign_of .. 'next', A.count, A.size)
  if #found > 0 then redis.call('SET', K.forwarder, A.worker, 'PX', A.ttl) end
  return found
end)
