-- Fills this worker's hand with seeds from the list.
--
-- A: worker; count (seeds in hand at most); size (bytes of them, beyond which no further one is taken).
-- Reply: all seeds in hand, the one taken first at the head; none for a worker that is not registered: nobody
--    would look after them if it died.

require_type(K.seeds, 'list')
require_type(K.processing_of .. A.worker, 'list')
if not redis.call('ZSCORE', K.workers, A.worker) then
  return_seeds(A.worker)
  return {}
end
local seeds, size = processing_list(A.worker), 0
for _, seed in ipairs(seeds) do size = size + #seed end
while #seeds < A.count and size < A.size do
  local seed = redis.call('RPOPLPUSH', K.seeds, K.processing_of .. A.worker)
  if not seed then break end
  seeds[#seeds + 1], size = seed, size + #seed
end
return seeds
