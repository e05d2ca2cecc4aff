-- Taking from workers that are silent what they hold.
-- needs: clock, dead_letters, leases, queues, seeds, circuit_changes, due
-- types: zset workers, hash totals, counter outstanding
-- reads: seeds
--
-- A: timeout (us that a worker may be silent); max_deliveries.
--
-- A lost lease goes back to the head of its queue with a delivery counted, and is a dead letter after the last one;
-- the seeds on the dead worker's processing list go back to the seed list, in order.

-- Whether what a worker holds can go back: its keys are what they should be.
local function can_return(worker)
  for key, kind in pairs({[K.leases_of .. worker] = 'hash', [K.processing_of .. worker] = 'list', [K.seeds] = 'list'}) do
    local found = redis.call('TYPE', key).ok
    if found ~= 'none' and found ~= kind then
      report_data_fault(wrong(key))
      return false
    end
  end
  return true
end

local function return_lease(lease)
  local deliveries = math.min(deliveries_of(lease.entry) + 1, 255)
  local entry = lease.entry:sub(1, 1) .. string.char(deliveries) .. lease.entry:sub(3)
  free_probe(lease.source, lease.generation)
  note_kind(lease.source, 'lost', 1)
  if deliveries < A.max_deliveries then return put_back(lease.source, entry) end
  add_dead_letter('entry', entry, lease.source, 'lost with its worker, delivery ' .. deliveries, deliveries)
  add(K.counts_of .. 'failed', lease.source, 1)
  add(K.totals, 'failed', 1)
  return false
end

-- The workers that are silent, some of them.
local function silent_workers()
  local found = redis.call('ZRANGEBYSCORE', K.workers, '-inf', text(now - A.timeout), 'LIMIT', 0, 50)
  -- A heartbeat in the future was not written by a worker.
  for _, worker in ipairs(redis.call('ZRANGEBYSCORE', K.workers, text(now + A.timeout), '+inf', 'LIMIT', 0, 50)) do
    found[#found + 1] = worker
  end
  return found
end

-- Appends {lost worker, leases returned, dead letters} to `reply`, for one worker that is silent, if there is any: the 2,000
-- leases that it may have had take up to 20 ms.
local function return_lost(reply)
  for _, worker in ipairs(silent_workers()) do if can_return(worker) then
    local touched, given_back, dead = {}, 0, 0
    local leases, foreign = leases_of(worker)
    for _, entry in ipairs(foreign) do add_dead_letter('entry', entry, '', FOREIGN_LEASE, deliveries_of(entry)) end
    for _, lease in ipairs(leases) do
      if return_lease(lease) then
        touched[lease.source] = true
        given_back = given_back + 1
      else
        dead = dead + 1
      end
    end
    redis.call('DEL', K.leases_of .. worker)
    redis.call('ZREM', K.workers, worker)
    return_seeds(worker)
    if dead > 0 then redis.call('DECRBY', K.outstanding, dead) end
    add(K.totals, 'deliveries_lost', dead + given_back)
    schedule_all(touched)
    for _, value in ipairs({worker, given_back, dead}) do reply[#reply + 1] = value end
    break
  end end
  save_circuits()
  save_requests()
end
