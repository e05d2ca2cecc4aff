-- Puts sources to rest that have had no results for a while: their counts are packed into one field, and what serves
-- only the present of them is forgotten.
--
-- A: fence; quiet (us without results); count (sources at most); min_rate; circuit.
-- Reply: how many sources there were.
register('rest', function(ctx, K, A)
  if tonumber(redis.call('GET', K.fence) or 0) ~= A.fence then return 0 end
  local sources = redis.call('ZRANGEBYSCORE', K.active, '-inf', text(ctx.now - A.quiet), 'LIMIT', 0, A.count)
  if #sources == 0 then return 0 end

  local packed, changed_counts = {}, {}
  for index, value in ipairs(read_all('HMGET', K.counts_at_rest, sources)) do
    packed[index] = value and cmsgpack.unpack(value) or {}
  end

  redis.call('ZREM', K.active, unpack(sources))
  for _, name in ipairs(redis.call('HKEYS', K.totals)) do -- of each count there is a total
    local key, ended = K.counts_of .. name, {}
    for index, value in ipairs(redis.call('HMGET', key, unpack(sources))) do
      if value then
        packed[index][name] = (packed[index][name] or 0) + value
        ended[#ended + 1], changed_counts[index] = sources[index], true
      end
    end
    if #ended > 0 then redis.call('HDEL', key, unpack(ended)) end
  end
  local fields = {}
  for index in pairs(changed_counts) do
    fields[#fields + 1], fields[#fields + 2] = sources[index], cmsgpack.pack(packed[index])
  end
  if #fields > 0 then redis.call('HSET', K.counts_at_rest, unpack(fields)) end

  circuits.look_up_halted(ctx, sources)
  for _, source in ipairs(sources) do circuits.forget_quiet(ctx, source) end
  return #sources
end, {'allow-oom'})
