-- Sets the counts of a frontier to what was counted in its lists, unless they have changed meanwhile.
--
-- A: timeout (us, of a worker's heartbeat); before, after: {outstanding, overflow, spilled}, `before` as they were read, false
--    for one that was missing; packs (name -> extents that need it, 0: none; those that differ); seen (requests in the last
--    generation of the exact seen filter, or none); lines (source -> its line in the ledger); orphans (workers that have
--    leases, and are not known).
-- Reply: 'done'; 'alive' when a worker is; 'changed' when it has to be counted again.
--
-- Workers change all of this in every call: there must be none.
register('recount', function(ctx, K, A)
  if #redis.call('ZRANGEBYSCORE', K.workers, text(ctx.now - A.timeout), '+inf', 'LIMIT', 0, 1) > 0 then return 'alive' end
  local counters = {K.outstanding, K.overflow, K.spilled}
  local values = redis.call('MGET', unpack(counters))
  for index = 1, #counters do
    if values[index] ~= A.before[index] then return 'changed' end
  end
  for index, key in ipairs(counters) do
    if A.after[index] ~= (A.before[index] or '0') then redis.call('SET', key, A.after[index]) end
  end
  for pack, extents in pairs(A.packs) do
    if extents > 0 then
      redis.call('HSET', K.packs, pack, text(extents))
      redis.call('ZREM', K.packs_dead, pack)
    else
      redis.call('HDEL', K.packs, pack)
      redis.call('ZADD', K.packs_dead, text(ctx.now), pack)
    end
  end
  if A.seen then redis.call('HSET', K.seen_meta, 'exact_count', text(A.seen)) end
  for source, line in pairs(A.lines) do redis.call('HSET', K.ledger, source, line) end
  for _, worker in ipairs(A.orphans) do redis.call('ZADD', K.workers, 'NX', 0, worker) end
  return 'done'
end, {'allow-oom'})
