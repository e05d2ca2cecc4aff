-- Says what the store has to do for overflows: which extents sources need next, which requests make new ones, and which extent
-- was dropped. Nothing is taken away: spill_commit.lua and take_extent.lua do that.
--
-- A: most (sources at most); folder (of the store, for the packs of this crawl, if it has none yet); most_dropped (as long as so
--    many dropped requests wait to be forgotten, no extent is read for more); high_water; min_rate; pace.
-- Reply: {now (s), the folder, {source, rank of the priority, reference, source, ...}, {source, rank, {request, ...}, source, ...},
--    reference of a dropped extent or ''}
--
-- Nobody else is told of these sources for CLAIM_US; then whoever asks, if they are still not done.
register('overflow_take', function(ctx, K, A)
  local MOST_BYTES, CLAIM_US = 4000000, 10000000 -- in a reply

  redis.call('SET', K.pack_folder, A.folder, 'NX')
  local needed, tails, left = {}, {}, MOST_BYTES

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
    if #entries > 0 then tails[#tails + 1], tails[#tails + 2], tails[#tails + 3] = source, rank, entries end
    return true
  end

  for _, source in ipairs(redis.call('ZRANGEBYSCORE', K.overflow_due, '-inf', text(ctx.now), 'LIMIT', 0, A.most)) do
    if left <= 0 then break end
    local rank, reference = queues.needed_extent(ctx, source)
    if rank then needed[#needed + 1], needed[#needed + 2], needed[#needed + 3] = source, rank, reference end
    local has_work = rank ~= nil
    for place, list in ipairs(queues.overflow_lists_of(ctx, source)) do has_work = read_tail(source, place, list) or has_work end
    if has_work then
      redis.call('ZADD', K.overflow_due, text(ctx.now + CLAIM_US), source)
    else
      redis.call('ZREM', K.overflow_due, source)
    end
  end
  local dropped = redis.call('LLEN', K.dropped) < A.most_dropped and redis.call('LINDEX', K.dropped_extents, 0)
  return {text(math.floor(ctx.now / 1000000)), redis.call('GET', K.pack_folder), needed, tails, dropped or ''}
end, {'allow-oom'})
