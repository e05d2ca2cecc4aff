-- A pack is in the store: references to its extents take the places of the heads of the tails.
--
-- A: pack (its name); began (when it was begun, s); extents, each the fields of Extent (state/calls/overflow.py).
-- Reply: of each extent 1, or 0: its tail no longer begins with what was read, as another worker has spilled it, or it was
--    dropped. A pack without extents is an orphan, which sweep_packs.lua finds. So it is if this call comes so late that it
--    could have been found already.
register('spill_commit', function(ctx, K, A)
  local reply, committed, requests = {}, 0, 0
  local is_late = ctx.now > (A.began + 600) * 1000000
  for index, extent in ipairs(A.extents) do
    reply[index] = 0
    local source, rank, count = extent.source, extent.rank, extent.requests
    local list, references = queues.overflow_lists_of(ctx, source)[rank], queues.extents_of(ctx, source)[rank]
    local head = not is_late and redis.call('LRANGE', list, 0, count - 1) or {}
    if #head == count and redis.sha1hex(table.concat(head, '\n')) == extent.digest then
      redis.call('LTRIM', list, count, -1)
      redis.call('RPUSH', references, string.format('%s:%s:%s:%s:%s', A.pack, text(extent.offset), text(extent.length),
        extent.digest, text(count)))
      reply[index], committed, requests = 1, committed + 1, requests + count
      redis.call('ZADD', K.overflow_due, text(ctx.now), source) -- there may be more of it
    end
  end
  if committed > 0 then
    redis.call('ZADD', K.packs, committed, A.pack)
    queues.count(ctx, 'spilled', requests)
  end
  return reply
end, {'allow-oom'})
