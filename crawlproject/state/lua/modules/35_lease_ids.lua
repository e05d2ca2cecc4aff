-- Leases, by worker.
local lease_ids = {}

-- What a lease id says: its number, the generation of its source's circuit when it was granted, and that source.
function lease_ids.parts_of(id)
  local digits, generation, source = id:match('^(%d+)%.(%d+):(.*)$')
  return tonumber(digits), tonumber(generation), source
end

-- A worker's leases as {number, generation, source, entry}, the newest first: put back in this order they keep
-- theirs.
function lease_ids.leases_of(ctx, worker)
  local fields, leases = redis.call('HGETALL', ctx.K.leases_of .. worker), {}
  for index = 1, #fields, 2 do
    local digits, generation, source = lease_ids.parts_of(fields[index])
    leases[#leases + 1] = {number = digits, generation = generation, source = source, entry = fields[index + 1]}
  end
  table.sort(leases, function(a, b) return a.number > b.number end)
  return leases
end
