-- Returns the seeds that users have pushed and that come next, the first one at the head; they stay where they are.
-- types: list users_seeds
-- reads: carrier
--
-- A: worker; ttl (ms that it is the one that divides them); count, size (seeds, and bytes beyond which there is no further one).
-- Reply: seeds; none while it is another worker's turn.

local carrier = strings(K.carrier)
if carrier and carrier ~= A.worker and redis.call('PTTL', K.carrier) >= 0 then return {} end
local waiting, size, found = redis.call('LRANGE', K.users_seeds, -A.count, -1), 0, {}
if #waiting == 0 then return {} end
redis.call('SET', K.carrier, A.worker, 'PX', A.ttl)
for index = #waiting, 1, -1 do
  if size >= A.size then break end
  found[#found + 1] = waiting[index]
  size = size + #waiting[index]
end
return found
