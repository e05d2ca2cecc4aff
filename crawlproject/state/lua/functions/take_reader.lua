-- Takes the lease of a reader of the event streams, so that one process at a time reads as it; or forgets the reader, so that
-- nothing is kept, and no crawl pauses, for it.
--
-- A: reader; forget (instead); holder (what the reader's record says of who holds it: holder, host, pid, output); ttl (us that
--    a lease outlasts its holder).
-- Reply: {'taken' or 'forgotten', the record of the reader (see the module readers)}; {'held', that record, us left}: nothing
--    was done; {'unknown'}, of one that was to be forgotten.
register('take_reader', function(ctx, K, A)
  local reader = readers.of(ctx, A.reader)
  if A.forget and not reader then return {'unknown'} end
  reader = reader or {last = {}, numbers = {}, lengths = {}}
  local left = (reader['until'] or 0) - ctx.server_time
  if left > 0 and (A.forget or reader.holder ~= A.holder.holder) then
    if left > A.ttl then -- the clock was set back: that keeps no dead holder's lease alive
      left, reader['until'] = A.ttl, ctx.server_time + A.ttl
      readers.save(ctx, A.reader, reader)
    end
    return {'held', cmsgpack.pack(reader), left}
  end
  if A.forget then
    redis.call('HDEL', K.readers, A.reader)
    return {'forgotten', cmsgpack.pack(reader)}
  end
  readers.lease_to(ctx, reader, A.holder, A.ttl)
  readers.save(ctx, A.reader, reader)
  return {'taken', cmsgpack.pack(reader)}
end, {'allow-oom'})
