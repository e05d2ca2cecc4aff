-- Notes how far a reader of the event streams has come, and renews its lease, in one step: if nobody else has taken it.
--
-- A: reader; holder and ttl (see take_reader.lua; ttl 0: the lease is given back); last (stream -> id of the last entry read);
--    numbers (of these entries, where they are known); file (id of the file that they are in, '' for none); length (of that file).
-- Reply: nil; or, with nothing done, the record of a reader that another process has taken (see the module readers).
--
-- A lease that has ended is renewed all the same if nobody has taken it since: nothing has happened meanwhile.
-- It is readers that free memory, so this runs when there is none, and then what all have read goes at once.
register('note_read', function(ctx, K, A)
  local reader = readers.of(ctx, A.reader) or {last = {}, numbers = {}, lengths = {}}
  if reader.holder and reader.holder ~= A.holder.holder then return cmsgpack.pack(reader) end
  readers.lease_to(ctx, reader, A.holder, A.ttl)
  if A.ttl == 0 then reader['until'] = nil end
  for stream, id in pairs(A.last) do
    if reader.last[stream] and reader.last[stream] ~= id then reader.read = ctx.server_time end
    reader.last[stream], reader.numbers[stream] = id, A.numbers[stream]
  end
  if A.file ~= '' then reader.lengths[A.file] = A.length end
  readers.save(ctx, A.reader, reader)
  if readers.is_memory_full() then
    local positions = readers.read_by_all(ctx)
    for _, stream in ipairs(ctx.EVENT_STREAMS) do readers.drop_read(stream, positions) end
  end
end, {'allow-oom'})
