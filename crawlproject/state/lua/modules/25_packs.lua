-- Extents: requests of a source's overflow that are in a pack, a file or object of the store with extents of many sources.
--
-- A reference to an extent is `folder/seconds-random:offset:length:digest:requests`: the name of the pack, with the time at
-- which it was begun, where in it the extent lies, and the SHA-1 of its requests, joined by newlines. A pack whose extents are
-- all gone is kept for another hour: Redis may come back with an older state, and want them.
local packs = {}

-- How many requests make an extent of a source's tail of that rank: the more wait, the larger, so that there are some
-- hundred references at most.
function packs.extent_size(ctx, source, rank, tail)
  local references = queues.extents_of(ctx, source)[rank]
  local last = redis.call('LINDEX', references, -1)
  local spilled = last and redis.call('LLEN', references) * queues.requests_in(last) or 0
  return math.min(math.max(math.floor((tail + spilled) / 64), LEAST_EXTENT), MOST_EXTENT)
end

-- Notes that an extent of a pack is gone.
function packs.end_extent(ctx, reference)
  local pack = reference:match('^[^:]*')
  if redis.call('HINCRBY', ctx.K.packs, pack, -1) > 0 then return end
  redis.call('HDEL', ctx.K.packs, pack)
  redis.call('ZADD', ctx.K.packs_dead, text(ctx.now), pack)
end
