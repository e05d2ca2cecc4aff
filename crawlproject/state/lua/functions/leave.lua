-- A worker that stops: whatever it still holds goes back, with no delivery counted.
--
-- A: worker; min_rate; circuit.
-- Reply: leases returned.
register('leave', function(ctx, K, A)
  redis.call('ZREM', K.workers, A.worker) -- first: it goes through when Redis is out of memory, and so does the rest
  local touched, dead, leases, foreign = {}, 0, lease_ids.leases_of(ctx, A.worker)
  for _, entry in ipairs(foreign) do dead_letters.add_dead_letter(ctx, 'entry', entry, '', FOREIGN_LEASE, queues.deliveries_of(entry)) end
  for _, lease in ipairs(leases) do
    if queues.put_back(ctx, lease.source, lease.entry) then touched[lease.source] = true else dead = dead + 1 end
    circuit_changes.free_probe(ctx, lease.source, lease.generation)
  end
  if dead > 0 then redis.call('DECRBY', K.outstanding, dead) end
  redis.call('DEL', K.leases_of .. A.worker)
  seed_list.return_seeds(ctx, A.worker)
  due_index.schedule_all(ctx, touched)
  circuit_changes.save_circuits(ctx)
  return #leases
end)
