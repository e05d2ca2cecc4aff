-- Seeds, and the processing list of each worker: those that it has taken and not yet enqueued.
local seed_list = {}

-- The seeds on a worker's processing list, the one taken first at the head.
function seed_list.processing_list(ctx, worker)
  local seeds, taken = redis.call('LRANGE', ctx.K.processing_of .. worker, 0, -1), {}
  for index = #seeds, 1, -1 do taken[#taken + 1] = seeds[index] end
  return taken
end

-- Returns the seeds on a worker's processing list to where they came from, in order.
function seed_list.return_seeds(ctx, worker)
  local processing = ctx.K.processing_of .. worker
  local seed = redis.call('LPOP', processing)
  while seed do
    redis.call('RPUSH', ctx.K.seeds, seed)
    seed = redis.call('LPOP', processing)
  end
end
