-- Forgets a reader of the event streams, so that nothing is kept, and no crawl pauses, for it.
--
-- A: reader; ttl (us, see take_reader.lua).
-- Reply: {'forgotten', stream, last id read, ...}, {'unknown'}, or {'held', host, pid, output, us left}: nothing was done.
register('forget_reader', function(ctx, K, A)
  local key = K.reader_of .. A.reader
  local held = redis.call('HMGET', key, 'host', 'pid', 'output')
  local left = readers.left_of_lease(ctx, key, A.ttl)
  if left > 0 then return {'held', held[1] or '', held[2] or '', held[3] or '', text(left)} end
  local reply = {'forgotten'}
  for _, field in ipairs(redis.call('HKEYS', K.readers)) do
    local reader, stream = field:match('^(.*)\n(.*)$')
    if reader == A.reader then
      reply[#reply + 1], reply[#reply + 2] = stream, redis.call('HGET', K.readers, field)
      redis.call('HDEL', K.readers, field)
    end
  end
  if redis.call('DEL', key) == 0 and #reply == 1 then return {'unknown'} end
  return reply
end, {'allow-oom'})
