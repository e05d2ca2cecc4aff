-- Puts seeds behind those that wait, and notes with them how far their feed has come: both or neither.
--
-- A: feed; run; position (behind these seeds, in words of the caller); keep (s); seeds; to (the shard of each, where there are
--    several, or one on a Redis Cluster; none: the list of the one shard); overflow_maxlen.
-- Reply: 'fed', also when they were put there before and only the reply was lost; 'taken' when another process has
--    begun the same feed since; 'full' when too many wait for one of these shards, and nothing was done.
register('feed', function(ctx, K, A)
  local key = K.feed_of .. A.feed
  if redis.call('HGET', key, 'run') ~= A.run then return 'taken' end
  if redis.call('HGET', key, 'position') == A.position then return 'fed' end
  if A.to then
    if not shards.have_room(ctx, A.to) then return 'full' end
    shards.send_seeds(ctx, A.to, A.seeds)
  elseif #A.seeds > 0 then
    redis.call('LPUSH', K.seeds, unpack(A.seeds))
  end
  redis.call('HSET', key, 'position', A.position)
  redis.call('EXPIRE', key, A.keep)
  return 'fed'
end)
