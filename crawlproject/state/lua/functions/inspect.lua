-- Says how sources stand, and what was counted of them.
--
-- A: sources; min_rate; circuit; pace (if no worker has told its own).
-- Reply: a map (msgpack) for each in order: the fields of SourceStatus in state/calls/sources.py, times in us; `hosts` are
--    those it was seen on in the last minutes -> {successes, errors}; `fetches` is that field of its window.
register('inspect', function(ctx, K, A)
  A.pace = tonumber(redis.call('HGET', K.counters, 'pace')) or A.pace
  due_index.look_up(ctx, A.sources)
  exclusions.look_up(ctx, A.sources)
  look_up(ctx, 'overrides', A.sources)
  look_up(ctx, 'windows', A.sources)
  look_up(ctx, 'ledgers', A.sources)
  local reply, rows, has_overflows = {}, read_all('HMGET', K.catalogue, A.sources), ctx.counters.overflow ~= 0
  local counts, dead = read_all('HMGET', K.counts, A.sources), read_all('HMGET', K.dead_sources, A.sources)
  for index, source in ipairs(A.sources) do
    local by_size, domains = rates.parts_of_row(rows[index])
    local is_excluded = exclusions.has(ctx, source) or exclusions.has_all(ctx, domains)
    local circuit = ctx.circuits[source]
    local delayed = redis.call('ZCARD', K.delayed_of .. source)
    local robots_delay = ctx.robots_delays[source]
    local window, ledger = ctx.windows[source], ctx.ledgers[source]
    local spilled = has_overflows and queues.spilled_of(ctx, source) or 0
    reply[index] = cmsgpack.pack({
      limit = rates.of(ctx, source),
      by_size = tonumber(by_size),
      override = ctx.overrides[source] or nil,
      effective = due_index.effective_rate(ctx, source),
      state = is_excluded and 'excluded' or ctx.halted[source] and 'halted' or circuit.state,
      held_until = due_index.held_until(ctx, source),
      now = ctx.now,
      factor = circuits.factor_of(ctx, circuit),
      why = circuit.why,
      robots_delay = robots_delay > 0 and robots_delay or nil,
      queued = queues.backlog_of(ctx, source) - delayed,
      delayed = delayed,
      next_slot = slots.next(ctx, source),
      generation = circuit.generation,
      waiting = (has_overflows and queues.tail_of(ctx, source) or 0) + spilled,
      over_robots = rates.is_over_robots(ctx, source),
      hosts = window.hosts,
      failing_host = windows.failing_host(window.hosts) or '',
      paced_until = ctx.paces[source],
      delay = A.pace,
      spilled = spilled,
      counts = counts[index] and cmsgpack.unpack(counts[index]) or {},
      dead = tonumber(dead[index]) or 0,
      spent = {ledger.all, ledger.poor},
      statuses = redis.call('LRANGE', K.statuses_of .. source, 0, 49),
      fetches = window.fetches,
    })
  end
  return reply
end, {'no-writes'})
