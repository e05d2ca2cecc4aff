-- Taking from workers that are silent what they hold.
--
-- A: timeout (us that a worker may be silent); max_deliveries.
--
-- A lost lease goes back to the head of its queue with a delivery counted, and is a dead letter after the last one;
-- the seeds on the dead worker's processing list go back to the seed list, in order.
local lost_leases = {}

function lost_leases.return_lease(ctx, lease)
  local deliveries = math.min(queues.deliveries_of(lease.entry) + 1, 255)
  local entry = lease.entry:sub(1, 1) .. string.char(deliveries) .. lease.entry:sub(3)
  circuit_changes.free_probe(ctx, lease.source, lease.generation)
  report.note_kind(ctx, lease.source, 'lost', 1)
  if deliveries < ctx.A.max_deliveries then
    queues.put_back(ctx, lease.source, entry)
    return true
  end
  dead_letters.add_dead_letter(ctx, 'entry', entry, lease.source, 'lost with its worker, delivery ' .. deliveries, deliveries)
  dead_letters.add(ctx, ctx.K.counts_of .. 'failed', lease.source, 1)
  dead_letters.add(ctx, ctx.K.totals, 'failed', 1)
  return false
end

-- Appends {lost worker, leases returned, dead letters} to `reply`, for one worker that is silent, if there is any: the 2,000
-- leases that it may have had take up to 20 ms.
function lost_leases.return_lost(ctx, reply)
  local worker = redis.call('ZRANGEBYSCORE', ctx.K.workers, '-inf', text(ctx.now - ctx.A.timeout), 'LIMIT', 0, 1)[1]
  if not worker then return end
  local touched, given_back, dead = {}, 0, 0
  for _, lease in ipairs(lease_ids.leases_of(ctx, worker)) do
    if lost_leases.return_lease(ctx, lease) then
      touched[lease.source] = true
      given_back = given_back + 1
    else
      dead = dead + 1
    end
  end
  redis.call('DEL', ctx.K.leases_of .. worker)
  redis.call('ZREM', ctx.K.workers, worker)
  seed_list.return_seeds(ctx, worker)
  if dead > 0 then redis.call('DECRBY', ctx.K.outstanding, dead) end
  dead_letters.add(ctx, ctx.K.totals, 'deliveries_lost', dead + given_back)
  due_index.schedule_all(ctx, touched)
  for _, value in ipairs({worker, given_back, dead}) do reply[#reply + 1] = value end
  circuit_changes.save_circuits(ctx)
  report.save_requests(ctx)
end
