-- Requests that come to a source when their lease has ended, or from another shard.
local arrivals = {}

-- Stores a request: after `micros`, to the head of its source's queue, or, a `stray`, behind what waits there. Returns whether it
-- is outstanding by that. `unique` keeps two equal ones apart.
function arrivals.arrive(ctx, source, entry, unique, micros, stray)
  rates.register_source(ctx, source)
  if micros > 0 then return queues.delay(ctx, source, entry, unique, micros) end
  if not stray then return queues.put_back(ctx, source, entry) end
  local rank = queues.rank_of(entry)
  if not queues.waits_apart(ctx, source, rank) then return queues.append(ctx, source, {entry}) end
  local list = queues.overflow_lists_of(ctx, source)[rank]
  if queues.store(ctx, source, {entry}, 'RPUSH', list, entry) then redis.call('INCR', ctx.K.overflow) end -- and it is not outstanding
  return false
end
