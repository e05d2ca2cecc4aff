-- Divides the seeds that users have pushed: returns those that come next, and then moves them to the lists of the shards that they
-- are for.
--
-- A: worker, ttl (ms that it is the one that divides them), count, size (seeds, and bytes beyond which there is no further one); or
--    digest (SHA-1 of the seeds that come next, joined by newlines, the first one at the head), to (the shard of each), size (as
--    before), shards, overflow_maxlen.
-- Reply: the seeds that come next, the first one at the head, which stay where they are; none while it is another worker's turn.
--    Or 1; 0 when others come next by now (some worker was faster, or this call is late), or one of these lists is full.
register('split_seeds', function(ctx, K, A)
  if A.worker and (redis.call('GET', K.forwarder) or A.worker) ~= A.worker then return {} end
  local count = A.to and #A.to or A.count
  local seeds = seed_list.peek(K.users_seeds, count, A.size)
  if not A.to then
    if #seeds > 0 then redis.call('SET', K.forwarder, A.worker, 'PX', A.ttl) end
    return seeds
  end
  if #seeds < count or redis.sha1hex(table.concat(seeds, '\n')) ~= A.digest then return 0 end
  for _, shard in ipairs(A.to) do
    if not shards.has_room(ctx, shard) then return 0 end -- or a few hundred less
  end
  for index, seed in ipairs(seeds) do redis.call('RPUSH', K.foreign_of .. A.to[index], cmsgpack.pack({kind = 'seed', seed = seed})) end
  redis.call('LTRIM', K.users_seeds, 0, -count - 1)
  return 1
end)
