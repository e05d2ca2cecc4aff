-- The requests of an extent come to the queues of their source, if it is still the first one.
-- needs: dead_letters, names, queues, extents, due
-- types: hash totals, counter outstanding overflow spilled
-- reads: rates slots halted
--
-- A: source; rank; reference; entries (none: the extent is lost, or not legible, which is counted); high_water; min_rate;
--    circuit.
-- Reply: 1, or 0 when another worker was first.

local source, references = A.source, extents_of(A.source)[A.rank]
if attempt('LINDEX', references, 0) ~= A.reference then return 0 end
look_up({source})
redis.call('LPOP', references)
local count, stored = requests_in(A.reference), 0
local lost = math.max(count - #A.entries, 0)
for first = 1, #A.entries, 1000 do
  local batches = {}
  for index = first, math.min(first + 999, #A.entries) do
    local entry = A.entries[index]
    local rank = rank_of(entry)
    local batch = batches[rank] or {}
    batches[rank], batch[#batch + 1] = batch, entry
  end
  for _, batch in pairs(batches) do
    if append(source, batch) then stored = stored + #batch end
  end
end
if stored > 0 then redis.call('INCRBY', K.outstanding, stored) end
redis.call('DECRBY', K.overflow, count)
redis.call('DECRBY', K.spilled, count)
add(K.totals, 'overflow_lost', lost)
end_extent(A.reference)
promote(source, require_counter(K.outstanding)) -- where it was the last one, or lost
schedule_all({[source] = true})
return 1
