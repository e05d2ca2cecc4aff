-- Fills this worker's processing list with seeds from the seed list.
--
-- A: worker; count (seeds on it at most); size (bytes of them, beyond which no further one is taken).
-- Reply: all seeds on it, the one taken first at the head; none for a worker that is not registered: nobody
--    would look after them if it died.
register('take_seeds', function(ctx, K, A)
  if not redis.call('ZSCORE', K.workers, A.worker) then
    seed_list.give_back(ctx, A.worker)
    return {}
  end
  local seeds, size = seed_list.in_hand(ctx, A.worker), 0
  for _, seed in ipairs(seeds) do size = size + #seed end
  local taken = seed_list.peek(K.seeds, A.count - #seeds, A.size - size)
  for _, seed in ipairs(taken) do seeds[#seeds + 1] = seed end
  if #taken > 0 then
    redis.call('LPUSH', K.processing_of .. A.worker, unpack(taken))
    redis.call('LTRIM', K.seeds, 0, -#taken - 1)
  end
  return seeds
end)
