-- A worker that stops: whatever it still holds goes back, with no delivery counted.
--
-- A: worker; min_rate.
-- Reply: leases returned.

for key, kind in pairs({[K.leases_of .. A.worker] = 'hash', [K.processing_of .. A.worker] = 'list', [K.seeds] = 'list'}) do
  require_type(key, kind)
end
redis.call('ZREM', K.workers, A.worker) -- first: it goes through when Redis is out of memory, and so does the rest
local touched, dead, leases, foreign = {}, 0, leases_of(A.worker)
for _, entry in ipairs(foreign) do bury('entry', entry, '', FOREIGN_LEASE, entry:byte(2) or 0) end
for _, lease in ipairs(leases) do
  if put_back(lease.source, lease.entry) then touched[lease.source] = true else dead = dead + 1 end
  returned(lease.source, lease.generation)
end
if dead > 0 then redis.call('DECRBY', K.outstanding, dead) end
redis.call('DEL', K.leases_of .. A.worker)
return_seeds(A.worker)
schedule_all(touched)
save_circuits()
return #leases
