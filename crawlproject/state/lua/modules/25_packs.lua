-- Extents: requests of a source's overflow that are in a pack, a file or object of the store with extents of many sources.
--
-- A reference to an extent is `folder/seconds-random:offset:length:digest:requests`: the name of the pack, with the time at
-- which it was begun, where in it the extent lies, and the SHA-1 of its requests, joined by newlines.
--
-- K.packs: a pack by how many of its extents are needed, or, below zero, by since when (us) none is. It is kept for another hour
-- then: Redis may come back with an older state, and want them.
local packs = {}

-- The list of the extents that were dropped, and whose requests are still in the seen filter.
function packs.dropped(ctx) return ctx.K.extents_of .. 'dropped' end

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
  if tonumber(redis.call('ZINCRBY', ctx.K.packs, -1, pack)) > 0 then return end
  redis.call('ZADD', ctx.K.packs, text(-ctx.now), pack)
end
