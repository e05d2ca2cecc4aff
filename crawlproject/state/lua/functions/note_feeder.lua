-- Notes that a process feeds seeds from a file or from Kafka, and how many it has left; or that it is done.
--
-- A: feeder; left (seeds, about; '' where it does not know); done.
-- Reply: nothing.
register('note_feeder', function(ctx, K, A)
  local reports = redis.call('HGETALL', K.feeders)
  for index = 1, #reports, 2 do
    if not feeders.report_in(ctx, reports[index + 1]) then redis.call('HDEL', K.feeders, reports[index]) end
  end
  if A.done then
    redis.call('HDEL', K.feeders, A.feeder)
  else
    redis.call('HSET', K.feeders, A.feeder, text(ctx.now) .. ':' .. A.left)
    redis.call('EXPIRE', K.feeders, 60)
  end
end, {'allow-oom'})
