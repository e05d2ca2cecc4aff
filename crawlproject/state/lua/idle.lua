-- Tells whether no work is left anywhere: frontier, seed list and every worker's hand are empty.
--
-- A: halted_too (work of halted sources counts as none).
-- Reply: 1 or 0.

local outstanding = tonumber(redis.call('GET', K.outstanding) or '0')
if A.halted_too and outstanding > 0 then
  for _, source in ipairs(redis.call('SMEMBERS', K.halted)) do outstanding = outstanding - held(source) end
  for _, suspect in ipairs(redis.call('LRANGE', K.suspects, 0, -1)) do
    outstanding = outstanding - redis.call('SISMEMBER', K.halted, suspect:match('^(.-)\n') or '')
  end
end
if outstanding > 0 then return 0 end
local workers = redis.call('ZRANGE', K.workers, 0, -1)
if not A.halted_too then
  -- The count may be too low where requests were put there or taken away by others than us.
  for _, tier in ipairs({K.due_fast, K.due_mid, K.due_slow}) do
    if redis.call('ZCARD', tier) > 0 then return 0 end
  end
  if redis.call('LLEN', K.suspects) > 0 then return 0 end
  for _, worker in ipairs(workers) do
    if (attempt('HLEN', K.leases_of .. worker) or 0) > 0 then return 0 end
  end
end
require_type(K.seeds, 'list')
if redis.call('LLEN', K.seeds) > 0 then return 0 end
for _, worker in ipairs(workers) do
  if (attempt('LLEN', K.processing_of .. worker) or 0) > 0 then return 0 end
end
return 1
