-- Leases, by worker.
local lease_ids = {}

local FOREIGN_LEASE = 'lease not written by crawlproject'

-- What a lease id says: its number, the generation of its source's circuit when it was granted, and that source.
-- Nothing, for one that was not written by crawlproject.
function lease_ids.parts_of(ctx, id)
  local digits, generation, source = id:match('^(%d+)%.(%d+):(.*)$')
  digits, generation = number(digits), number(generation)
  if digits and generation and source_names.is_name(ctx, source) then return digits, generation, source end
  return nil
end

-- A worker's leases as {number, generation, source, entry}, the newest first: put back in this order they keep
-- theirs. Second, the entries of those that were not written by crawlproject.
function lease_ids.leases_of(ctx, worker)
  local fields, leases, foreign = redis.call('HGETALL', ctx.K.leases_of .. worker), {}, {}
  for index = 1, #fields, 2 do
    local digits, generation, source = lease_ids.parts_of(ctx, fields[index])
    if digits then
      leases[#leases + 1] = {number = digits, generation = generation, source = source, entry = fields[index + 1]}
    else
      foreign[#foreign + 1] = fields[index + 1]
    end
  end
  table.sort(leases, function(a, b) return a.number > b.number end)
  return leases, foreign
end
