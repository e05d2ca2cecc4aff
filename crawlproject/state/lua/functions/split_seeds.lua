-- Moves seeds that users have pushed to the lists of the shards that they are for.
--
-- A: digest (SHA-1 of the seeds that come next, joined by newlines, the first one at the head); to (the shard of each); size (as
--    they were peeked at); shards; overflow_maxlen.
-- Reply: 1, or 0 when others come next by now (some worker was faster, or this call is late), or one of these lists is full.
register('split_seeds', function(ctx, K, A)
  local count = #A.to
  local seeds = seed_list.peek(K.users_seeds, K.foreign_of .. 'next', count, A.size)
  if #seeds < count or redis.sha1hex(table.concat(seeds, '\n')) ~= A.digest then return 0 end
  if not shards.have_room(ctx, A.to) then return 0 end
  shards.send_seeds(ctx, A.to, seeds)
  redis.call('LTRIM', K.users_seeds, 0, -count - 1)
  return 1
end)
