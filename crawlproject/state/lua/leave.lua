-- A worker that stops: whatever it still holds goes back, with no delivery counted.
-- needs: dead_letters, leases, queues, seeds, circuit_changes, due
-- types: zset workers, list seeds, counter outstanding
--
-- A: worker; min_rate; circuit.
-- Reply: leases returned.

require_type('hash', K.leases_of .. A.worker)
require_type('list', K.processing_of .. A.worker)
redis.call('ZREM', K.workers, A.worker) -- first: it goes through when Redis is out of memory, and so does the rest
local touched, dead, leases, foreign = {}, 0, leases_of(A.worker)
for _, entry in ipairs(foreign) do add_dead_letter('entry', entry, '', FOREIGN_LEASE, deliveries_of(entry)) end
for _, lease in ipairs(leases) do
  if put_back(lease.source, lease.entry) then touched[lease.source] = true else dead = dead + 1 end
  free_probe(lease.source, lease.generation)
end
if dead > 0 then redis.call('DECRBY', K.outstanding, dead) end
redis.call('DEL', K.leases_of .. A.worker)
return_seeds(A.worker)
schedule_all(touched)
save_circuits()
return #leases
