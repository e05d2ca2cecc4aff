-- Says how sources stand.
--
-- A: sources; min_rate; circuit.
-- Reply, for each in order: {limit, by size or '', override or '', effective rate, state, held until (us, 0:
--    not), now, factor, why, robots delay (s) or '', queued, delayed, next slot, generation, probes out}

local reply = {}
for index, source in ipairs(A.sources) do
  local circuit = circuit_of(source)
  local delayed = attempt('ZCARD', K.delayed_of .. source) or 0
  local asked = attempt('ZRANGE', K.robots_delays_of .. source, -1, -1, 'WITHSCORES') or {}
  local by_size = redis.call('HGET', K.limits, source)
  local state = redis.call('SISMEMBER', K.halted, source) == 1 and 'halted' or circuit.state
  reply[index] = {
    string.format('%.17g', rate_of(source)),
    number(by_size) and by_size or '',
    attempt('GET', K.override_rate_of .. source) or '',
    string.format('%.17g', effective_rate(source)),
    state,
    text(held_until(source)),
    text(now),
    string.format('%.17g', factor_of(circuit)),
    circuit.why,
    asked[2] or '',
    text(held(source) - delayed),
    text(delayed),
    text(next_slot(source)),
    text(circuit.generation),
    text(circuit.probing),
  }
end
return reply
