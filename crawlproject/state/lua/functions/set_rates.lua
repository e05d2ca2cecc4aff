-- Writes what the leader has computed, and moves the sources to their new places at once.
--
-- A: fence; min_rate; circuit; rates, a list of {source, limit in force, rate by size or '' if the catalogue
--    has none, and, when the catalogue was read, what else it says of the source as JSON or '', and the domains that it is
--    bound to, with a blank before and after each, or ''};
--    hosts (domain -> source); gone, gone_hosts (sources and domains that the catalogue no longer names: they lose their rate by
--    size, or their source).
--    Of a source of another shard only what says which requests belong to it is written: rate by size, and domains.
-- Reply: 1, or 0 when another leads by now.
register('set_rates', function(ctx, K, A)
  if tonumber(redis.call('GET', K.fence) or 0) ~= A.fence then return 0 end
  local sources = {}
  for index, row in ipairs(A.rates) do sources[index] = row[1] end
  due_index.look_up(ctx, sources)
  due_index.look_up_standing(ctx, sources)
  rates.require_overrides(ctx, sources)
  local limits = read_all('HMGET', K.limits, sources)
  for index, row in ipairs(A.rates) do
    local source = row[1]
    local before, override = rates.limit_of(ctx, source), rates.override_of(ctx.overrides[source])
    local known, by_size = ctx.registered[source], rates.limit_text(tonumber(limits[index]) or A.min_rate)
    local is_own = not shards.is_elsewhere(ctx, source)
    if is_own then due_index.change_rate(ctx, source, row[2]) end
    local after = rates.limit_of(ctx, source)
    if before ~= after and override == after then
      audit.note_override(ctx, source, rates.of(ctx, source), 'override', rates.is_over_robots(ctx, source))
    elseif before ~= after and not override and known and before ~= by_size then
      audit.note_override(ctx, source, rates.of(ctx, source), 'size')
    end
    if row[3] ~= '' then redis.call('HSET', K.limits, source, row[3]) end
    if row[4] == '' or not is_own then
      redis.call('HDEL', K.options, source)
    elseif row[4] then
      redis.call('HSET', K.options, source, row[4])
    end
    if row[5] == '' then
      redis.call('HDEL', K.claims, source)
    elseif row[5] then
      redis.call('HSET', K.claims, source, row[5])
    end
    if is_own then
      redis.call('SADD', K.sources, source)
      due_index.schedule(ctx, source)
    end
  end
  due_index.save(ctx)
  for domain, source in pairs(A.hosts) do redis.call('HSET', K.hosts, domain, source) end
  for _, source in ipairs(A.gone) do
    for _, key in ipairs({K.limits, K.options, K.claims}) do redis.call('HDEL', key, source) end
  end
  for _, domain in ipairs(A.gone_hosts) do redis.call('HDEL', K.hosts, domain) end
  return 1
end)
