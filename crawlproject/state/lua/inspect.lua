-- Says how sources stand.
-- needs: exclusions, queues, due
-- types: hash limits
-- reads: rates slots halted
--
-- A: sources; min_rate; circuit.
-- Reply, for each in order: {limit, by size or '', override or '', effective rate, state, held until (us, 0:
--    not), now, factor, why, robots delay (s) or '', queued, delayed, next slot, generation, probes out, requests beyond its share of
--    the frontier, 1 if the limit is over robots.txt else 0}

look_up(A.sources)
look_up_excluded(A.sources)
local reply = {}
for index, source in ipairs(A.sources) do
  local circuit = circuit_of(source)
  local delayed = attempt('ZCARD', K.delayed_of .. source) or 0
  local robots_delay = robots_delay_of(source) or 0
  local by_size = redis.call('HGET', K.limits, source)
  reply[index] = {
    string.format('%.17g', rate_of(source)),
    number(by_size) and by_size or '',
    attempt('GET', K.override_rate_of .. source) or '',
    string.format('%.17g', effective_rate(source)),
    is_excluded(source) and 'excluded' or is_halted(source) and 'halted' or circuit.state,
    text(held_until(source)),
    text(now),
    string.format('%.17g', factor_of(circuit)),
    circuit.why,
    robots_delay > 0 and string.format('%.17g', robots_delay) or '',
    text(backlog_of(source) - delayed),
    text(delayed),
    text(next_slot(source)),
    text(circuit.generation),
    text(circuit.probing),
    text(overflow_of(source)),
    is_over_robots(source) and 1 or 0,
  }
end
return reply
