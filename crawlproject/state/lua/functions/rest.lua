-- Puts sources to rest that have had no results for a while: what serves only the present of them is forgotten.
--
-- A: fence; quiet (us without results); count (sources at most); min_rate; circuit.
-- Reply: how many sources there were.
register('rest', function(ctx, K, A)
  if tonumber(redis.call('GET', K.fence) or 0) ~= A.fence then return 0 end
  local sources = redis.call('ZRANGEBYSCORE', K.active, '-inf', text(ctx.now - A.quiet), 'LIMIT', 0, A.count)
  write_all('ZREM', K.active, sources)
  circuits.look_up_halted(ctx, sources)
  for _, source in ipairs(sources) do circuits.forget_statuses(ctx, source) end
  circuits.save(ctx)
  return #sources
end, {'allow-oom'})
