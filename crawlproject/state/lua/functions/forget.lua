-- Takes out what the catalogue no longer names: sources lose their rate by size, domains their source.
--
-- A: fence; sources; domains.
-- Reply: 1, or 0 when another leads by now. Their rates in force are changed by set_rates, before.
register('forget', function(ctx, K, A)
  if tonumber(redis.call('GET', K.fence) or 0) ~= A.fence then return 0 end
  for _, source in ipairs(A.sources) do
    redis.call('HDEL', K.limits, source)
    redis.call('HDEL', K.options, source)
    redis.call('HDEL', K.claims, source)
  end
  for _, domain in ipairs(A.domains) do redis.call('HDEL', K.hosts, domain) end
  return 1
end, {'allow-oom'})
