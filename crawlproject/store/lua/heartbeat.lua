-- Says that a worker lives, and takes from those that do not.
--
-- A: worker; join (true: register; false: only if still registered); timeout (us); max_deliveries; min_rate.
-- Reply: {alive, leases held, lost worker, leases returned, dead letters, lost worker, ...}
--    alive is 0 when this worker lapsed: its leases are others' by now, and it must join anew.
--
-- A worker that was itself silent until now takes nothing: Redis may have been away, and the others' turn to
-- beat is still to come.
--
-- A lost lease goes back to the head of its queue with a delivery counted, and is a dead letter at the
-- last; the seeds in the dead worker's hand go back to the list, in order.

local before = tonumber(redis.call('ZSCORE', K.workers, A.worker) or '')
if not A.join and not before then return {0, 0} end
require_type(K.dead, 'stream')
require_type(K.seeds, 'list')
redis.call('ZADD', K.workers, text(now), A.worker)
local reply = {1, redis.call('HLEN', K.leases_of .. A.worker)}
if not before or before < now - A.timeout / 2 then return reply end

for _, worker in ipairs(redis.call('ZRANGEBYSCORE', K.workers, '-inf', text(now - A.timeout), 'LIMIT', 0, 2)) do
  local touched, given_back, dead = {}, 0, 0
  for _, lease in ipairs(leases_of(worker)) do
    local entry = lease.entry
    local deliveries = math.min((entry:byte(2) or 0) + 1, 255)
    entry = entry:sub(1, 1) .. string.char(deliveries) .. entry:sub(3)
    if deliveries >= A.max_deliveries then
      bury('entry', entry, lease.source, 'lost with its worker, delivery ' .. deliveries, deliveries)
      redis.call('HINCRBY', K.counts_of .. 'failed', lease.source, 1)
      dead = dead + 1
    else
      put_back(lease.source, entry)
      touched[lease.source] = true
      given_back = given_back + 1
    end
    returned(lease.source, lease.generation)
  end
  redis.call('DEL', K.leases_of .. worker)
  redis.call('ZREM', K.workers, worker)
  return_seeds(worker)
  if dead > 0 then redis.call('DECRBY', K.outstanding, dead) end
  if dead + given_back > 0 then redis.call('HINCRBY', K.totals, 'deliveries_lost', dead + given_back) end
  schedule_all(touched)
  for _, value in ipairs({worker, given_back, dead}) do reply[#reply + 1] = value end
end
save_circuits()
return reply
