-- Says what the store has to do for overflows: which extents are wanted from it, and which requests make new ones. Nothing is
-- taken away: spill_commit.lua and take_extent.lua do that.
--
-- A: most (sources at most); folder (of the store, for the packs of this crawl, if it has none yet).
-- Reply: {now (s), the folder, {{source, rank of the priority, reference}, ...}, {{source, rank, {request, ...}}, ...}}
--    An extent that was dropped is wanted, too, under no source ('') and rank 0.
--
-- Nobody else is told of these sources for CLAIM_US; then whoever asks, if they are still not done.
register('overflow_take', function(ctx, K, A)
  local MOST_BYTES, CLAIM_US = 4000000, 10000000 -- in a reply

  redis.call('SET', K.pack_folder, A.folder, 'NX')
  local wanted, tails, left = {}, {}, MOST_BYTES

  -- Reads the head of a list that is long enough for an extent; returns whether it was.
  local function read_tail(source, rank, list)
    local tail = redis.call('LLEN', list)
    local size = packs.extent_size(ctx, source, rank, tail)
    if tail < size then return false end
    local entries = {}
    for first = 0, size - 1, LEAST_EXTENT do
      if left <= 0 then break end
      for _, entry in ipairs(redis.call('LRANGE', list, first, math.min(first + LEAST_EXTENT, size) - 1)) do
        entries[#entries + 1], left = entry, left - #entry
      end
    end
    if #entries > 0 then tails[#tails + 1] = {source, rank, entries} end
    return true
  end

  for _, source in ipairs(redis.call('ZRANGEBYSCORE', K.overflow_due, '-inf', text(ctx.now), 'LIMIT', 0, A.most)) do
    if left <= 0 then break end
    local rank, reference = queues.needed_extent(ctx, source)
    if rank then wanted[#wanted + 1] = {source, rank, reference} end
    local has_work = rank ~= nil
    for place, list in ipairs(queues.overflow_lists_of(ctx, source)) do has_work = read_tail(source, place, list) or has_work end
    if has_work then
      redis.call('ZADD', K.overflow_due, text(ctx.now + CLAIM_US), source)
    else
      redis.call('ZREM', K.overflow_due, source)
    end
  end
  local dropped = redis.call('LINDEX', packs.dropped(ctx), 0)
  if dropped then wanted[#wanted + 1] = {'', 0, dropped} end
  return {text(math.floor(ctx.now / 1000000)), redis.call('GET', K.pack_folder), wanted, tails}
end, {'allow-oom'})
