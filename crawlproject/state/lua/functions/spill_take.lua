-- Reads the heads of tails that are long enough for an extent. Nothing is taken away: spill_commit.lua does that, when they
-- are in the store.
--
-- A: again (sources whose extents could not be stored before); most (sources at most); folder (of the store, for the packs of
--    this crawl, if it has none yet); min_rate.
-- Reply: {now (s), the folder, source, rank of the priority, {request, ...}, source, ...}
--
-- The set of sources is a hint: one that is lost with a worker comes back when its source's tail grows.
register('spill_take', function(ctx, K, A)
  local MOST_BYTES = 4000000 -- in a reply

  if #A.again > 0 then redis.call('SADD', K.spill_ready, unpack(A.again)) end
  redis.call('SET', K.pack_folder, A.folder, 'NX')
  local folder = redis.call('GET', K.pack_folder)
  local reply, left = {text(math.floor(ctx.now / 1000000)), folder}, MOST_BYTES
  for _, source in ipairs(redis.call('SPOP', K.spill_ready, A.most)) do
    for rank = 1, FOUND_RANKS do
      local list = queues.overflow_lists_of(ctx, source)[rank]
      local tail = redis.call('LLEN', list)
      local size = packs.extent_size(ctx, source, rank, tail)
      if tail >= size and left <= 0 then
        redis.call('SADD', K.spill_ready, source)
      elseif tail >= size then
        local entries = {}
        for first = 0, size - 1, LEAST_EXTENT do
          for _, entry in ipairs(redis.call('LRANGE', list, first, math.min(first + LEAST_EXTENT, size) - 1)) do
            entries[#entries + 1], left = entry, left - #entry
          end
          if left <= 0 then break end
        end
        reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = source, rank, entries
      end
    end
  end
  return reply
end, {'allow-oom'})
