-- Notes how far a reader of the event streams has come, and renews its lease, in one step: if nobody else has taken it.
--
-- A: reader; holder and ttl (see take_reader.lua; ttl 0: the lease is given back); positions (stream -> id of the last
--    entry read); file (id of the file that they are in, '' for none); length (of that file).
-- Reply: {'noted'}; or, with nothing done, {'lost', host, pid, output, length of the file when its last events were
--    noted or ''}.
--
-- A lease that has ended is renewed all the same if nobody has taken it since: nothing has happened meanwhile.
-- It is readers that free memory, so this runs when there is none, and then what all have read goes at once.
register('note_read', function(ctx, K, A)
  -- How many entries a stream had up to the one where a reader stands, as far as Redis knows it, from 7 on: where that is the
  -- last one, or where it begins.
  local function number_of(stream, id, is_new)
    local flat, info = redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'STREAM', stream) or {}, {}
    for index = 1, #flat, 2 do info[flat[index]] = flat[index + 1] end
    if id == info['last-generated-id'] then return info['entries-added'] end
    if is_new and id == '0-0' then return (info['entries-added'] or 0) - (info.length or 0) end
  end

  local key = K.reader_of .. A.reader
  local held = redis.call('HMGET', key, 'holder', 'host', 'pid', 'output', 'length:' .. A.file)
  if held[1] and held[1] ~= A.holder.holder then
    return {'lost', held[2] or '', held[3] or '', held[4] or '', held[5] or ''}
  end
  if A.ttl > 0 then
    readers.lease_to(ctx, key, A.holder, A.ttl)
  else
    redis.call('HDEL', key, 'until')
  end
  for stream, id in pairs(A.positions) do
    local field = A.reader .. '\n' .. stream
    local before = redis.call('HGET', K.readers, field)
    if before ~= id then
      redis.call('HSET', K.readers, field, id)
      redis.call('HSET', key, 'place:' .. stream, id .. ' ' .. (number_of(stream, id, not before) or ''))
      if before then redis.call('HSET', key, 'read', text(ctx.server_time)) end
    end
  end
  if A.file ~= '' then redis.call('HSET', key, 'length:' .. A.file, text(A.length)) end
  if readers.is_memory_full() then
    local positions = readers.read_by_all(ctx)
    for _, stream in ipairs(ctx.EVENT_STREAMS) do readers.drop_read(stream, positions) end
  end
  return {'noted'}
end, {'allow-oom'})
