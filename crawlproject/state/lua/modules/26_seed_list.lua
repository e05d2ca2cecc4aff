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

local LONGEST = 1048576 -- bytes

-- Returns the seeds that come next in a list, the first one at the head; they stay where they are. These are `count` at most,
-- and beyond `size` bytes there is no further one. In place of a longer line come a zero byte and its length.
function seed_list.peek(list, count, size)
  users_keys.require('list', list)
  local found = {}
  while #found < count and size > 0 do
    local place = -1 - #found
    local seed = redis.call('LINDEX', list, place)
    if not seed then break end
    size = size - #seed
    if #seed > LONGEST then
      seed = '\0' .. #seed
      redis.call('LSET', list, place, seed)
    end
    found[#found + 1] = seed
  end
  return found
end
