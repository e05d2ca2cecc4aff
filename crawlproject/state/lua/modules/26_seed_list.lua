-- Seeds, and the processing list of each worker: those that it has taken and not yet enqueued.
local seed_list = {}

-- The seeds on a worker's processing list, the one taken first at the head.
function seed_list.in_hand(ctx, worker)
  local seeds, taken = redis.call('LRANGE', ctx.K.processing_of .. worker, 0, -1), {}
  for index = #seeds, 1, -1 do taken[#taken + 1] = seeds[index] end
  return taken
end

-- Returns the seeds on a worker's processing list to where they came from, in order.
function seed_list.give_back(ctx, worker)
  local processing = ctx.K.processing_of .. worker
  local seed = redis.call('LPOP', processing)
  while seed do
    redis.call('RPUSH', ctx.K.seeds, seed)
    seed = redis.call('LPOP', processing)
  end
end

local LONGEST = 1312000 -- bytes in memory of a line of 1 MiB, at most: allocators round them up to 1.25 MiB

-- Returns the seeds that come next in a list, the first one at the head; they stay where they are. These are `count` at most,
-- and beyond `size` bytes there is no further one. Lua takes 3 ms for each MB that it reads. So the length of each seed is
-- found first, from a copy at `scratch`, in 1.2 ms for each MB. A line that no seed can be as long as is not read: a zero byte
-- and its length take its place.
function seed_list.peek(list, scratch, count, size)
  users_keys.require('list', list)
  local found = {}
  redis.set_repl(redis.REPL_NONE) -- replicas need no copies
  while #found < count and size > 0
    and redis.call('SORT', list, 'BY', 'nosort', 'DESC', 'LIMIT', #found, 1, 'STORE', scratch) > 0 do
    local bytes = redis.call('MEMORY', 'USAGE', scratch, 'SAMPLES', 0)
    if bytes > LONGEST then
      redis.set_repl(redis.REPL_ALL)
      redis.call('LSET', list, -1 - #found, '\0' .. bytes)
      redis.set_repl(redis.REPL_NONE)
      size = size - bytes
    end
    found[#found + 1] = redis.call('LINDEX', list, -1 - #found)
    size = size - #found[#found]
  end
  redis.call('DEL', scratch)
  redis.set_repl(redis.REPL_ALL)
  return found
end
