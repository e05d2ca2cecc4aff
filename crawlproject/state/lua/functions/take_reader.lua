-- Takes the lease of a reader of the event streams, so that one process at a time reads as it; or forgets the reader, so that
-- nothing is kept, and no crawl pauses, for it.
--
-- A: reader; forget (instead); holder (map of what the hash of the reader says of who holds it: holder, host, pid, output); ttl (us that
--    a lease outlasts its holder); file (id of the file that is written, '' for none).
-- Reply: {'taken', length that the file had when its last events were noted or '', stream, last id read, ...}, or
--    {'held', holder, host, pid, output, us left, until}: nothing was done. Of one that was forgotten, {'forgotten', stream, last
--    id read, ...}, or {'unknown'}.
register('take_reader', function(ctx, K, A)
  local key = K.reader_of .. A.reader
  local held = redis.call('HMGET', key, 'holder', 'host', 'pid', 'output')
  if held[1] and (A.forget or held[1] ~= A.holder.holder) then
    local left = readers.left_of_lease(ctx, key, A.ttl)
    if left > 0 then
      return {'held', held[1], held[2] or '', held[3] or '', held[4] or '', text(left), redis.call('HGET', key, 'until')}
    end
  end
  if A.forget then return readers.forget(ctx, A.reader) end
  readers.lease_to(ctx, key, A.holder, A.ttl)
  local reply = {'taken', redis.call('HGET', key, 'length:' .. A.file) or ''}
  for _, stream in ipairs(ctx.EVENT_STREAMS) do
    local id = redis.call('HGET', K.readers, A.reader .. '\n' .. stream)
    if id then reply[#reply + 1], reply[#reply + 2] = stream, id end
  end
  return reply
end, {'allow-oom'})
