-- Says how sources stand.
-- needs: exclusions, queues, due, seen_hosts
-- types: hash limits
-- reads: rates slots halted
--
-- A: sources; min_rate; circuit; pace.
-- Reply, for each in order: {limit, by size or '', override or '', effective rate, state, held until (us, 0:
--    not), now, factor, why, robots delay (s) or '', queued, delayed, next slot, generation, probes out, requests beyond its share of
--    the frontier, 1 if the limit is over robots.txt else 0, the hosts it was seen on in the last
--    minutes: {host ('' for the rest), successes, errors, host, ...}, the one whose errors are all there are, or '', when this
--    spider may send to it (us), the delay that it keeps itself (us), how many of those beyond its share are in extents}

look_up(A.sources)
look_up_excluded(A.sources)
local reply = {}
for index, source in ipairs(A.sources) do
  local circuit = circuit_of(source)
  local delayed = attempt('ZCARD', K.delayed_of .. source) or 0
  local robots_delay = robots_delay_of(source) or 0
  local hosts, seen_on = unpack_hosts(attempt('HGET', K.window_of .. source, 'hosts')), {}
  for _, host in ipairs(hosts) do
    local place = #seen_on
    seen_on[place + 1], seen_on[place + 2], seen_on[place + 3] = host.name, host.fine, host.errors
  end
  local spilled = spilled_of(source)
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
    text(tail_of(source) + spilled),
    is_over_robots(source) and 1 or 0,
    seen_on,
    failing_host(hosts) or '',
    text(paced_until(source)),
    text(A.pace),
    text(spilled),
  }
end
return reply
