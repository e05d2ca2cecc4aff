-- Collects what the monitor reports of the whole crawl, and which sources it looks at one by one.
--
-- A: worker; must_lead (read for the one who leads only, and not before its time); every (us between two samples);
--    timeout (us that a worker may be silent); most (sources); dead_maxlen.
-- Reply: {} when another leads; {us to wait} when the last sample is too young; else {now, leads (1 or 0), moment
--    of the last sample or '', what was kept of it or '', outstanding, seeds in the list, requests beyond
--    their sources' windows, dead letters, workers alive, workers registered, {kind, sentence} of a pause
--    (see the pause), sources known, sources due, names excluded, halted, halted for a while, totals,
--    latencies, sources to look at, {processes that feed, seeds that they have left or '' if one does not know}, sources due by
--    now, bytes that Redis uses, requests of those beyond windows that are spilled},
--    those of totals to feeders as lists; hashes as field, value, field, ...
--
-- Up to `most` known sources are all looked at. Of more: those that are halted, then those with results lately, the
-- last first, then those with work.
register('collect', function(ctx, K, A)
  local leads = redis.call('GET', K.leader) == A.worker
  if A.must_lead and not leads then return {} end
  local kept = redis.call('HMGET', K.sample, 'at', 'counters')
  local at = tonumber(kept[1])
  if A.must_lead and at and at <= ctx.now and ctx.now < at + A.every then return {text(at + A.every - ctx.now)} end

  local names, chosen = {}, {}
  local function choose(sources)
    for _, source in ipairs(sources) do
      if #names >= A.most then return end
      if not chosen[source] and naming.is_valid(source) then
        chosen[source] = true
        names[#names + 1] = source
      end
    end
  end

  local halted = redis.call('SRANDMEMBER', K.halted, A.most)
  local for_a_while = redis.call('SRANDMEMBER', K.temp_halted, A.most)
  local known = redis.call('SCARD', K.sources)
  choose(halted)
  choose(for_a_while)
  if known <= A.most then choose(redis.call('SMEMBERS', K.sources)) end
  choose(redis.call('ZREVRANGE', K.active, 0, A.most - 1))
  local due, ready = 0, 0
  for _, key in ipairs(ctx.due_sets) do
    choose(redis.call('ZRANGE', key, 0, A.most - 1))
    due = due + redis.call('ZCARD', key)
    ready = ready + redis.call('ZCOUNT', key, '-inf', text(ctx.now))
  end

  local processes, left = 0, 0
  for index, value in ipairs(redis.call('HVALS', K.feeders)) do
    local at, seeds = feeders.report_in(ctx, value)
    if at then
      processes = processes + 1
      left = left and seeds and left + seeds
    end
  end

  return {
    text(ctx.now),
    leads and 1 or 0,
    at and text(at) or '',
    kept[2] or '',
    ctx.counters.outstanding + shards.waiting(ctx),
    redis.call('LLEN', K.seeds),
    ctx.counters.overflow,
    redis.call('XLEN', K.dead),
    pause.workers_alive(ctx),
    redis.call('ZRANGE', K.workers, 0, -1),
    pause.reason(ctx),
    known,
    due,
    redis.call('SCARD', K.excluded),
    halted,
    for_a_while,
    redis.call('HGETALL', K.totals),
    redis.call('HGETALL', K.latencies),
    names,
    {text(processes), left and text(left) or ''},
    ready,
    (redis.call('INFO', 'memory'):match('used_memory:(%d+)')) or '0',
    ctx.counters.spilled,
  }
end, {'no-writes'})
