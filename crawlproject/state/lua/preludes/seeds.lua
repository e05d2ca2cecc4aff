-- Seeds, and the processing list of each worker: those that it has taken and not yet enqueued.

-- The seeds on a worker's processing list, the one taken first at the head.
local function processing_list(worker)
  local seeds, taken = redis.call('LRANGE', K.processing_of .. worker, 0, -1), {}
  for index = #seeds, 1, -1 do taken[#taken + 1] = seeds[index] end
  return taken
end

-- Returns the seeds on a worker's processing list to where they came from, in order.
local function return_seeds(worker)
  local processing = K.processing_of .. worker
  local seed = redis.call('LPOP', processing)
  while seed do
    redis.call('RPUSH', K.seeds, seed)
    seed = redis.call('LPOP', processing)
  end
end
