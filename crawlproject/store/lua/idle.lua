-- Tells whether no work is left anywhere: frontier, seed list and every worker's hand are empty.
--
-- Reply: 1 or 0.

if (tonumber(redis.call('GET', K.outstanding) or '0')) > 0 then return 0 end
if redis.call('LLEN', K.seeds) > 0 then return 0 end
for _, worker in ipairs(redis.call('ZRANGE', K.workers, 0, -1)) do
  if redis.call('LLEN', K.in_hand_of .. worker) > 0 then return 0 end
end
return 1
