-- A worker that stops: whatever it still holds goes back, with no delivery counted.
--
-- A: worker; min_rate.
-- Reply: leases returned.

local touched, leases = {}, leases_of(A.worker)
for _, lease in ipairs(leases) do
  put_back(lease.source, lease.entry)
  returned(lease.source, lease.generation)
  touched[lease.source] = true
end
redis.call('DEL', K.leases_of .. A.worker)
redis.call('ZREM', K.workers, A.worker)
return_seeds(A.worker)
schedule_all(touched)
save_circuits()
return #leases
