-- Returns what another shard is to be given next: the same until that is forgotten.
--
-- A: to (the number of that shard); name (of the batch, should this call make it; no other one has it); count, size (entries in it,
--    and bytes beyond which there is no further one); or `taken` (the name of a batch that the other shard has: that is forgotten.
--    One of another name stays: this call is late).
-- Reply: the name of the batch, its entries, packed as they are; nothing if nothing waits.
--
-- Who takes a batch knows it by its name, and takes it once (receive.lua), however often and by whomever it is given. Whoever
-- calls this waits until a replica has what it wrote: else the entries might have gone, and, after a fail-over, go again in
-- another batch. So it writes in each case: a replica that has this has what others wrote before, too.
register('batch', function(ctx, K, A)
  local list, batch = K.foreign_of .. A.to, K.batch_of .. A.to
  if A.taken then
    if redis.call('LINDEX', batch, 0) == A.taken then redis.call('DEL', batch) end
    return {}
  end
  if redis.call('EXISTS', batch) == 0 then
    local entries, size = {}, 0
    while #entries < A.count and size < A.size do -- one by one: each may have a megabyte
      local entry = redis.call('LPOP', list)
      if not entry then break end
      entries[#entries + 1], size = entry, size + #entry
    end
    if #entries == 0 then return {} end
    redis.call('RPUSH', batch, A.name, unpack(entries))
  end
  local found = redis.call('LRANGE', batch, 0, -1)
  redis.call('LSET', batch, 0, found[1])
  return found
end, {'allow-oom'})
