-- Writes what the leader has computed, and moves the sources to their new places at once.
--
-- A: fence; min_rate; circuit; rates, a list of {source, limit in force, row of the catalogue or '' if that stays as it is};
--    hosts (domain -> source); gone, gone_hosts (sources and domains that the catalogue no longer names: they lose their row,
--    or their source). Each of these may be missing.
--    Of a source of another shard only its row is written, which says which requests belong to it.
-- Reply: 1, or 0 when another leads by now.
register('set_rates', function(ctx, K, A)
  if tonumber(redis.call('GET', K.fence) or 0) ~= A.fence then return 0 end
  local sources = {}
  for index, row in ipairs(A.rates or {}) do sources[index] = row[1] end
  due_index.look_up(ctx, sources)
  rates.require_overrides(ctx, sources)
  local stored = read_all('HMGET', K.catalogue, sources)
  for index, source in ipairs(sources) do
    local row = A.rates[index]
    local before, override = rates.limit_of(ctx, source), rates.override_of(ctx.overrides[source])
    local known, by_size = ctx.limits[source].is_known, rates.limit_text(tonumber((rates.parts_of_row(stored[index]))) or A.min_rate)
    local is_own = not shards.is_elsewhere(ctx, source)
    if is_own then
      due_index.change_rate(ctx, source, row[2])
      ctx.touched[source] = true
    end
    local after = rates.limit_of(ctx, source)
    if before ~= after and override == after then
      audit.note_override(ctx, source, rates.of(ctx, source), 'override', rates.is_over_robots(ctx, source))
    elseif before ~= after and not override and known and before ~= by_size then
      audit.note_override(ctx, source, rates.of(ctx, source), 'size')
    end
    if row[3] ~= '' then redis.call('HSET', K.catalogue, source, row[3]) end
  end
  for domain, source in pairs(A.hosts or {}) do redis.call('HSET', K.hosts, domain, source) end
  for _, source in ipairs(A.gone or {}) do redis.call('HDEL', K.catalogue, source) end
  for _, domain in ipairs(A.gone_hosts or {}) do redis.call('HDEL', K.hosts, domain) end
  return 1
end)
