-- Tells whether no work is left anywhere: frontier, seed list and every worker's hand are empty.
--
-- A: halted_too (work of halted sources counts as none).
-- Reply: 1 or 0.

local outstanding = tonumber(redis.call('GET', K.outstanding) or '0')
if A.halted_too and outstanding > 0 then
  for _, source in ipairs(redis.call('SMEMBERS', K.halted)) do outstanding = outstanding - held(source) end
  for _, suspect in ipairs(redis.call('LRANGE', K.suspects, 0, -1)) do
    outstanding = outstanding - redis.call('SISMEMBER', K.halted, suspect:match('^(.-)\n'))
  end
end
if outstanding > 0 then return 0 end
if redis.call('LLEN', K.seeds) > 0 then return 0 end
for _, worker in ipairs(redis.call('ZRANGE', K.workers, 0, -1)) do
  if redis.call('LLEN', K.in_hand_of .. worker) > 0 then return 0 end
end
return 1
