-- Says which extents are to be fetched: the first one of each source whose window is half used.
--
-- A: most (sources at most); min_rate.
-- Reply: {source, rank of the priority, reference, source, ...}
--
-- The set of sources is a hint: whoever leases of a source with extents adds it again.
register('refill_take', function(ctx, K, A)
  local reply = {}
  for _, source in ipairs(redis.call('SPOP', K.refill_ready, A.most)) do
    for rank = FOUND_RANKS, 1, -1 do
      local reference = redis.call('LINDEX', queues.extents_of(ctx, source)[rank], 0)
      if reference then
        reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = source, rank, reference
        break
      end
    end
  end
  return reply
end, {'allow-oom'})
