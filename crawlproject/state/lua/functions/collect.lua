-- Collects what the monitor reports of the whole crawl, and which sources it looks at one by one.
--
-- A: timeout (us that a worker may be silent); most (sources); dead_maxlen.
-- Reply: a map (msgpack) of the fields of Overview in state/calls/crawl.py.
--
-- Up to `most` known sources are all looked at. Of more: those that are halted, then those with results lately, the
-- last first, then those with work.
register('collect', function(ctx, K, A)
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

  local function numbers_in(key)
    local found, fields = {}, redis.call('HGETALL', key)
    for index = 1, #fields, 2 do found[fields[index]] = tonumber(fields[index + 1]) end
    return found
  end

  local halted = redis.call('SRANDMEMBER', K.halted, A.most)
  local for_a_while = redis.call('SRANDMEMBER', K.temp_halted, A.most)
  local known = redis.call('HLEN', K.rates)
  choose(halted)
  choose(for_a_while)
  if known <= A.most then choose(redis.call('HKEYS', K.rates)) end
  choose(redis.call('ZREVRANGE', K.active, 0, A.most - 1))
  local due, ready = 0, 0
  for _, key in ipairs(ctx.due_sets) do
    local standing = redis.call('ZCARD', key)
    if standing > 0 then
      due, ready = due + standing, ready + redis.call('ZCOUNT', key, '-inf', text(ctx.now))
      if #names < A.most then choose(redis.call('ZRANGE', key, 0, A.most - 1)) end
    end
  end

  return cmsgpack.pack({
    now = ctx.now,
    outstanding = ctx.counters.outstanding + shards.waiting(ctx),
    seeds = redis.call('LLEN', K.seeds),
    overflow = ctx.counters.overflow,
    dead = redis.call('XLEN', K.dead),
    alive = pause.workers_alive(ctx),
    pause = pause.reason(ctx),
    known = known,
    due = due,
    excluded = redis.call('SCARD', K.excluded),
    halted = halted,
    halted_for_a_while = for_a_while,
    totals = numbers_in(K.totals),
    sources = names,
    ready = ready,
    redis_bytes = tonumber(redis.call('INFO', 'memory'):match('used_memory:(%d+)')) or 0,
    spilled = ctx.counters.spilled,
  })
end, {'no-writes'})
