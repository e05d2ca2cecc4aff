-- Fills this worker's hand with seeds from the list.
--
-- A: worker; count (seeds in hand at most).
-- Reply: all seeds in hand, the one taken first at the head; none for a worker that is not registered: nobody
--    would look after them if it died.

require_type(K.seeds, 'list')
require_type(K.in_hand_of .. A.worker, 'list')
if not redis.call('ZSCORE', K.workers, A.worker) then
  return_seeds(A.worker)
  return {}
end
local in_hand = K.in_hand_of .. A.worker
for _ = 1, A.count - redis.call('LLEN', in_hand) do
  if not redis.call('RPOPLPUSH', K.seeds, in_hand) then break end
end
return seeds_in_hand(A.worker)
