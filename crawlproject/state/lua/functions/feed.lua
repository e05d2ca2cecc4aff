-- Puts seeds behind those that wait, and notes with them how far their feed has come: both or neither.
--
-- A: list (where users push seeds); feed; run; position (behind these seeds, in words of the caller); keep (s); seeds.
-- Reply: 1, also when they were put there before and only the reply was lost; 0 when another process has begun the same feed since.
register('feed', function(ctx, K, A)
  local key = K.feed_of .. A.feed
  if redis.call('HGET', key, 'run') ~= A.run then return 0 end
  if redis.call('HGET', key, 'position') == A.position then return 1 end
  users_keys.require('list', A.list)
  if #A.seeds > 0 then redis.call('LPUSH', A.list, unpack(A.seeds)) end
  redis.call('HSET', key, 'position', A.position)
  redis.call('EXPIRE', key, A.keep)
  return 1
end)
