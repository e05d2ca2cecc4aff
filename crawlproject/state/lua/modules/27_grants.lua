-- The leases that workers hold, and taking from workers that are silent what they hold.
--
-- A: timeout (us that a worker may be silent); max_deliveries.
--
-- A lost lease goes back to the head of its queue with a delivery counted, and is a dead letter after the last one;
-- the seeds on the dead worker's processing list go back to the seed list, in order.
local grants = {}

-- What a lease id says, behind its number: the generation of its source's circuit when it was granted, and that source.
function grants.parts_of(id)
  local generation, source = id:match('^%d+%.(%d+):(.*)$')
  return tonumber(generation), source
end

-- A worker's leases as {number, generation, source, entry}, the newest first: put back in this order they keep theirs.
function grants.of_worker(ctx, worker)
  local fields, leases = redis.call('HGETALL', ctx.K.leases_of .. worker), {}
  for index = 1, #fields, 2 do
    local generation, source = grants.parts_of(fields[index])
    leases[#leases + 1] = {number = tonumber(fields[index]:match('^%d+')), generation = generation, source = source,
      entry = fields[index + 1]}
  end
  table.sort(leases, function(a, b) return a.number > b.number end)
  return leases
end

-- Returns a lease that was lost with its worker, or makes it a dead letter; returns whether it was returned.
function grants.return_lost(ctx, lease)
  local deliveries = math.min(queues.deliveries_of(lease.entry) + 1, 255)
  local entry = lease.entry:sub(1, 1) .. string.char(deliveries) .. lease.entry:sub(3)
  report.note_kind(ctx, lease.source, 'lost', 1)
  if deliveries < ctx.A.max_deliveries then
    queues.put_back(ctx, lease.source, entry)
    return true
  end
  dead_letters.add(ctx, 'entry', entry, lease.source, 'lost with its worker, delivery ' .. deliveries, deliveries)
  statistics.note(ctx, lease.source, 'failed', 1)
  return false
end

-- Takes all from a worker that it holds: its leases and seeds go back. Returns how many leases did, and how many became dead letters,
-- as happens where it `is_lost`. The 2,000 leases that it may have had take up to 20 ms.
function grants.take_all(ctx, worker, is_lost)
  local given_back, dead = 0, 0
  for _, lease in ipairs(grants.of_worker(ctx, worker)) do
    ctx.touched[lease.source] = true
    circuits.free_probe(ctx, lease.source, lease.generation)
    if not is_lost then queues.put_back(ctx, lease.source, lease.entry) end
    if not is_lost or grants.return_lost(ctx, lease) then given_back = given_back + 1 else dead = dead + 1 end
  end
  redis.call('DEL', ctx.K.leases_of .. worker)
  redis.call('ZREM', ctx.K.workers, worker)
  seed_list.give_back(ctx, worker)
  queues.count(ctx, 'outstanding', -dead)
  return given_back, dead
end
