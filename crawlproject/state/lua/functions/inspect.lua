-- Says how sources stand.
--
-- A: sources; min_rate; circuit; pace.
-- Reply, for each in order: {limit, by size or '', override or '', effective rate, state, held until (us, 0:
--    not), now, factor, why, robots delay (s) or '', queued, delayed, next slot, generation, probes out, requests beyond its
--    window, 1 if the limit is over robots.txt else 0, the hosts it was seen on in the last
--    minutes: {host ('' for the rest), successes, errors, host, ...}, the one whose errors are all there are, or '', when this
--    spider may send to it (us), the delay that it keeps itself (us), how many of those beyond its share are in extents}
register('inspect', function(ctx, K, A)
  due_index.look_up(ctx, A.sources)
  exclusions.look_up(ctx, A.sources)
  local reply = {}
  for index, source in ipairs(A.sources) do
    local circuit = circuits.of(ctx, source)
    local delayed = redis.call('ZCARD', K.delayed_of .. source)
    local robots_delay = robots.delay_of(ctx, source)
    local hosts, seen_on = windows.of(ctx, source).hosts, {}
    for host, results in pairs(hosts) do
      for _, value in ipairs({host, results[1], results[2]}) do seen_on[#seen_on + 1] = value end
    end
    local spilled = queues.spilled_of(ctx, source)
    reply[index] = {
      string.format('%.17g', rates.of(ctx, source)),
      rates.parts_of_row(redis.call('HGET', K.catalogue, source)) or '',
      redis.call('GET', K.override_rate_of .. source) or '',
      string.format('%.17g', due_index.effective_rate(ctx, source)),
      exclusions.has(ctx, source) and 'excluded' or circuits.is_halted(ctx, source) and 'halted' or circuit.state,
      text(due_index.held_until(ctx, source)),
      text(ctx.now),
      string.format('%.17g', circuits.factor_of(ctx, circuit)),
      circuit.why,
      robots_delay > 0 and string.format('%.17g', robots_delay) or '',
      text(queues.backlog_of(ctx, source) - delayed),
      text(delayed),
      text(slots.next(ctx, source)),
      text(circuit.generation),
      text(circuit.probing),
      text(queues.tail_of(ctx, source) + spilled),
      rates.is_over_robots(ctx, source) and 1 or 0,
      seen_on,
      windows.failing_host(hosts) or '',
      text(pace.free_at(ctx, source)),
      text(A.pace),
      text(spilled),
    }
  end
  return reply
end, {'no-writes'})
