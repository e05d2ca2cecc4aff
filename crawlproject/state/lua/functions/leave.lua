-- A worker that stops: whatever it still holds goes back, with no delivery counted.
--
-- A: worker; min_rate; circuit.
-- Reply: leases returned.
register('leave', function(ctx, K, A)
  redis.call('ZREM', K.workers, A.worker)
  local touched, leases = {}, lease_ids.leases_of(ctx, A.worker)
  for _, lease in ipairs(leases) do
    queues.put_back(ctx, lease.source, lease.entry)
    touched[lease.source] = true
    circuit_changes.free_probe(ctx, lease.source, lease.generation)
  end
  redis.call('DEL', K.leases_of .. A.worker)
  seed_list.return_seeds(ctx, A.worker)
  due_index.schedule_all(ctx, touched)
  circuit_changes.save_circuits(ctx)
  return #leases
end, {'allow-oom'})
