-- Requests that come to a source when their lease has ended, or from another shard.
-- needs: queues

-- Stores a request: after `micros`, to the head of its source's queue, or, a `stray`, behind what waits there. Returns whether it
-- is outstanding by that. `unique` keeps two equal ones apart.
local function arrive(source, entry, unique, micros, stray)
  register_source(source)
  if micros > 0 then return delay(source, entry, unique, micros) end
  if not stray then return put_back(source, entry) end
  local rank = rank_of(entry)
  if not waits_apart(source, rank) then return append(source, {entry}) end
  local list = overflow_lists_of(source)[rank]
  if store(source, {entry}, 'RPUSH', list, entry) then redis.call('INCR', K.overflow) end -- and it is not outstanding
  return false
end
