-- Looking at the seeds that come next, in the seed list or where users push them.
local seeding = {}

local LONGEST = 1312000 -- bytes in memory of a line of 1 MiB, at most: allocators round them up to 1.25 MiB

-- Returns the seeds that come next in a list, the first one at the head; they stay where they are. These are `count` at most,
-- and beyond `size` bytes there is no further one. Lua takes 3 ms for each MB that it reads. So the length of each seed is
-- found first, from a copy at `scratch`, in 1.2 ms for each MB. A line that no seed can be as long as is not read: a zero byte and
-- its length take its place.
function seeding.next_seeds(list, scratch, count, size)
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
