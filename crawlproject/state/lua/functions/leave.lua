-- A worker that stops: whatever it still holds goes back, with no delivery counted.
--
-- A: worker; min_rate; circuit.
-- Reply: leases returned.
register('leave', function(ctx, K, A)
  redis.call('ZREM', K.workers, A.worker)
  local touched, leases = {}, grants.of_worker(ctx, A.worker)
  for _, lease in ipairs(leases) do
    queues.put_back(ctx, lease.source, lease.entry)
    touched[lease.source] = true
    circuits.free_probe(ctx, lease.source, lease.generation)
  end
  redis.call('DEL', K.leases_of .. A.worker)
  seed_list.give_back(ctx, A.worker)
  due_index.schedule_all(ctx, touched)
  circuits.save(ctx)
  return #leases
end, {'allow-oom'})
