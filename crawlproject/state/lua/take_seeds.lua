-- Fills this worker's processing list with seeds from the seed list.
-- needs: next_seeds, seeds
-- types: list seeds, zset workers
--
-- A: worker; count (seeds on it at most); size (bytes of them, beyond which no further one is taken).
-- Reply: all seeds on it, the one taken first at the head; none for a worker that is not registered: nobody
--    would look after them if it died.

require_type('list', K.processing_of .. A.worker)
if not redis.call('ZSCORE', K.workers, A.worker) then
  return_seeds(A.worker)
  return {}
end
local seeds, size = processing_list(A.worker), 0
for _, seed in ipairs(seeds) do size = size + #seed end
local taken = next_seeds(K.seeds, K.processing_of .. 'next', A.count - #seeds, A.size - size)
for _, seed in ipairs(taken) do seeds[#seeds + 1] = seed end
if #taken > 0 then
  redis.call('LPUSH', K.processing_of .. A.worker, unpack(taken))
  redis.call('LTRIM', K.seeds, 0, -#taken - 1)
end
return seeds
