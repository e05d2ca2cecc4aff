-- Extents: requests of a source's tail that are in a pack, a file or object of the store with extents of many sources.
-- needs: clock, queues
-- types: hash packs, zset packs_dead
--
-- A reference to an extent is `folder/seconds-random:offset:length:digest:requests`: the name of the pack, with the time at
-- which it was begun, where in it the extent lies, and the SHA-1 of its requests, joined by newlines. A pack whose extents are all gone is kept for another hour: Redis may
-- come back with an older state, and want them.

local FOUND_RANKS = 2 -- the lowest ones: those of the priorities 0 and 1
local LEAST_EXTENT, MOST_EXTENT = 64, 2048 -- requests

-- How many requests make an extent of a source's tail of that rank: the more wait, the larger, so that there are some
-- hundred references at most.
local function extent_size(source, rank, tail)
  local references = extents_of(source)[rank]
  local spilled = (attempt('LLEN', references) or 0) * requests_in(attempt('LINDEX', references, -1) or '')
  return math.min(math.max(math.floor((tail + spilled) / 64), LEAST_EXTENT), MOST_EXTENT)
end

-- Notes that the tail `list` of a source has grown; a hint for spill_take.lua.
local function note_tail(source, list)
  if (attempt('LLEN', list) or 0) >= LEAST_EXTENT then attempt('SADD', K.spill_ready, source) end
end

-- Notes that an extent of a pack is gone.
local function end_extent(reference)
  local pack = reference:match('^([%w_-]+/%d+%-%x+):')
  if not pack or (attempt('HINCRBY', K.packs, pack, -1) or 0) > 0 then return end
  redis.call('HDEL', K.packs, pack)
  redis.call('ZADD', K.packs_dead, text(now), pack)
end
