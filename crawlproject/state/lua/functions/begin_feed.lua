-- Begins a feed of files, or takes it over from the process that has begun it.
--
-- A: feed; run (this process); resume (where the last one stopped; else from the beginning); keep (s).
-- Reply: the position of the last seeds that were put into the list; '' if it begins.
register('begin_feed', function(ctx, K, A)
  local key = K.feed_of .. A.feed
  local position = A.resume and redis.call('HGET', key, 'position') or ''
  redis.call('HSET', key, 'run', A.run, 'position', position)
  redis.call('EXPIRE', key, A.keep)
  return position
end)
