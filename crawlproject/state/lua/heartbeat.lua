-- Says that a worker lives, and takes from those that do not.
-- needs: clock, dead_letters, leases, queues, seeds, circuit_changes, due
-- types: zset workers, hash totals, counter outstanding
-- reads: seeds
--
-- A: worker; join (true: register; false: only if still registered); timeout (us); max_deliveries; min_rate; circuit.
-- Reply: {alive, leases held, lost worker, leases returned, dead letters, lost worker, ...}
--    alive is 0 when this worker lapsed: its leases are others' by now, and it must join anew.
--
-- A worker that was itself silent until now takes nothing: Redis may have been away, and the others' turn to
-- send a heartbeat is still to come. If nobody has sent one for so long, Redis was away, or its clock was set
-- forward: all get their whole time anew.
--
-- A lost lease goes back to the head of its queue with a delivery counted, and is a dead letter after the last one;
-- the seeds on the dead worker's processing list go back to the seed list, in order.

local before = tonumber(redis.call('ZSCORE', K.workers, A.worker) or '')
if not A.join and not before then return {0, 0} end
local reply = {1, read('hash', 'HLEN', K.leases_of .. A.worker)}
local latest = tonumber(redis.call('ZREVRANGEBYSCORE', K.workers, text(now), '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or '')
redis.call('ZREM', K.workers, A.worker) -- frees: a worker lives, also when Redis is out of memory
redis.call('ZADD', K.workers, text(now), A.worker)
if before and not A.join and latest and latest < now - A.timeout / 2 then
  for _, worker in ipairs(redis.call('ZRANGE', K.workers, 0, -1)) do redis.call('ZADD', K.workers, text(now), worker) end
end
if not before or before < now - A.timeout / 2 then return reply end

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

-- A heartbeat in the future was not written by a worker.
local lapsed = redis.call('ZRANGEBYSCORE', K.workers, '-inf', text(now - A.timeout), 'LIMIT', 0, 2)
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', K.workers, text(now + A.timeout), '+inf', 'LIMIT', 0, 2)) do
  lapsed[#lapsed + 1] = worker
end
for _, worker in ipairs(lapsed) do if can_return(worker) then
  local touched, given_back, dead = {}, 0, 0
  local leases, foreign = leases_of(worker)
  for _, entry in ipairs(foreign) do add_dead_letter('entry', entry, '', FOREIGN_LEASE, deliveries_of(entry)) end
  for _, lease in ipairs(leases) do
    local entry, deliveries = lease.entry, math.min(deliveries_of(lease.entry) + 1, 255)
    entry = entry:sub(1, 1) .. string.char(deliveries) .. entry:sub(3)
    if deliveries >= A.max_deliveries then
      add_dead_letter('entry', entry, lease.source, 'lost with its worker, delivery ' .. deliveries, deliveries)
      add(K.counts_of .. 'failed', lease.source, 1)
      add(K.totals, 'failed', 1)
      dead = dead + 1
    elseif put_back(lease.source, entry) then
      touched[lease.source] = true
      given_back = given_back + 1
    else
      dead = dead + 1
    end
    free_probe(lease.source, lease.generation)
  end
  redis.call('DEL', K.leases_of .. worker)
  redis.call('ZREM', K.workers, worker)
  return_seeds(worker)
  if dead > 0 then redis.call('DECRBY', K.outstanding, dead) end
  add(K.totals, 'deliveries_lost', dead + given_back)
  schedule_all(touched)
  for _, value in ipairs({worker, given_back, dead}) do reply[#reply + 1] = value end
end end
save_circuits()
return reply
