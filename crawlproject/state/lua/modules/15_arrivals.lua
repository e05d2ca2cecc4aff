-- Requests that come to a source when their lease has ended, or from another shard.
local arrivals = {}

-- Stores a request: after `micros`, to the head of its source's queue, or, a `stray`, behind what waits there. Returns whether it
-- is outstanding by that. `unique` keeps two equal ones apart.
function arrivals.arrive(ctx, source, entry, unique, micros, stray)
  rates.register_source(ctx, source)
  local rank = queues.rank_of(entry)
  if micros > 0 then
    queues.delay(ctx, source, entry, unique, micros)
  elseif not stray then
    queues.put_back(ctx, source, entry)
  elseif not queues.waits_apart(ctx, source, rank) then
    queues.append(ctx, source, {entry})
  else
    redis.call('RPUSH', queues.overflow_lists_of(ctx, source)[rank], entry)
    redis.call('INCR', ctx.K.overflow)
    return false
  end
  return true
end
