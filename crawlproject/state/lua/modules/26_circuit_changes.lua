-- Changes of circuits, and the events that tell of them.
--
-- Circuits are written once, at the end of a script, by save_circuits(), statuses by save_statuses().
local circuit_changes = {}

function state.changed() return {} end
function state.windows() return {} end
-- those to be written; whether a source has some
function state.statuses() return {} end
function state.on_record() return {} end

function circuit_changes.change(ctx, source)
  ctx.changed[source] = true
  return circuits.circuit_of(ctx, source)
end

function circuit_changes.save_circuits(ctx)
  for source in pairs(ctx.changed) do
    local circuit, values = ctx.circuits[source], {}
    for _, name in ipairs(NUMBERS) do
      values[#values + 1] = name
      values[#values + 1] = string.format('%.17g', circuit[name])
    end
    if circuit.rests then
      redis.call('HDEL', ctx.K.circuit_of .. source, 'rests')
      redis.call('PERSIST', ctx.K.circuit_of .. source)
    end
    redis.call('HSET', ctx.K.circuit_of .. source, 'state', circuit.state, 'why', circuit.why, unpack(values))
    redis.call('SADD', ctx.K.watchlist, source)
  end
end

-- A lease of this generation is over: where it was a probe, another may go out. Returns whether it was one.
function circuit_changes.free_probe(ctx, source, generation)
  local circuit = circuits.circuit_of(ctx, source)
  if circuit.state ~= 'half_open' or circuit.generation ~= generation or circuit.probing == 0 then return false end
  circuit_changes.change(ctx, source).probing = circuit.probing - 1
  return true
end

-- Notes a status of a source, for save_statuses().
function circuit_changes.note_status(ctx, source, status)
  local noted = ctx.statuses[source]
  if noted then noted[#noted + 1] = status else ctx.statuses[source] = {status} end
end

function circuit_changes.save_statuses_of(ctx, source)
  local noted = ctx.statuses[source]
  if not noted then return end
  ctx.statuses[source] = nil
  local length = redis.call('LPUSH', ctx.K.statuses_of .. source, unpack(noted))
  if length > 50 then redis.call('LTRIM', ctx.K.statuses_of .. source, 0, 49) end
end

function circuit_changes.save_statuses(ctx)
  for source in pairs(ctx.statuses) do circuit_changes.save_statuses_of(ctx, source) end
end

-- The newest `most` statuses of a source as JSON, as in {"200": 34, "503": 6}.
function circuit_changes.response_codes(ctx, source, most)
  circuit_changes.save_statuses_of(ctx, source)
  local counts, names, parts = {}, {}, {}
  for _, status in ipairs(most > 0 and redis.call('LRANGE', ctx.K.statuses_of .. source, 0, most - 1) or {}) do
    if not counts[status] then names[#names + 1] = status end
    counts[status] = (counts[status] or 0) + 1
  end
  table.sort(names)
  for _, name in ipairs(names) do parts[#parts + 1] = '"' .. name .. '": ' .. counts[name] end
  return '{' .. table.concat(parts, ', ') .. '}'
end

-- Tells of a change of state: `what` happened, why, by whom, and how many of the last statuses have led to it (all 50).
function circuit_changes.announce(ctx, stream, name, source, kind, what, why, by, results)
  local shown = audit.shown_name(ctx, source)
  local msg = shown .. ' ' .. what .. '. Response codes: ' .. circuit_changes.response_codes(ctx, source, math.min(results or 50, 50))
  audit.note_change(ctx, name, {source = shown, type = kind, msg = msg, reason = why, by = by}, stream)
end

-- Changes of state

function circuit_changes.enter(ctx, source, state)
  local circuit = circuit_changes.change(ctx, source)
  circuit.state, circuit.generation = state, circuit.generation + 1
  circuit.probing, circuit.passed = 0, 0
  circuit.noted = ctx.statuses[source] and 1 or redis.call('EXISTS', ctx.K.statuses_of .. source)
  return circuit
end

-- `results`: how many there were in the window that tripped it; without it an operator has done so.
function circuit_changes.open_circuit(ctx, source, why, results)
  local rules, circuit = circuits.rules_of(ctx, source), circuit_changes.enter(ctx, source, 'open')
  circuit.opens = circuit.opens + 1
  circuit.ends = ctx.now + math.min(rules.open * 2 ^ math.min(circuit.opens - 1, 30), rules.open_max)
  redis.call('SADD', ctx.K.temp_halted, source)
  local what = results and 'tripped temporary halt' or 'was put on temporary halt'
  local by = results and audit.worker_at_work(ctx) or audit.operator_of(ctx, source, 'halt')
  circuit_changes.announce(ctx, ctx.K.halted_events, 'crawl_halted', source, 'temporary', what, why, by, results)
  report.note_incident(ctx, source, 'opened', why, 'opened')
end

function circuit_changes.let_probes_out(ctx, source)
  circuit_changes.enter(ctx, source, 'half_open').ends = ctx.now -- it may have been over for long: see watch.lua
  redis.call('SREM', ctx.K.temp_halted, source)
  circuit_changes.announce(ctx, nil, 'crawl_probing', source, 'temporary', 'is probed', 'its open period is over', audit.worker_at_work(ctx))
end

-- `results`: how many errors in a row there were; without it an operator has halted it.
function circuit_changes.halt(ctx, source, why, results)
  circuit_changes.enter(ctx, source, 'halted')
  redis.call('SREM', ctx.K.temp_halted, source)
  redis.call('SADD', ctx.K.halted, source)
  ctx.halted[source] = true
  local what = results and 'tripped permanent halt' or 'was put on permanent halt'
  local by = results and audit.worker_at_work(ctx) or audit.operator_of(ctx, source, 'halt')
  circuit_changes.announce(ctx, ctx.K.halted_events, 'crawl_halted', source, 'permanent', what, why, by, results)
  report.note_incident(ctx, source, 'halted', why, 'halted')
end

-- Closed, with nothing counted against it; `by_operator` also at the full rate again.
function circuit_changes.close_circuit(ctx, source, kind, why, by_operator)
  local circuit = circuit_changes.enter(ctx, source, 'closed')
  circuit.opens, circuit.run, circuit.periods, circuit.ends, circuit.noted = 0, 0, 0, 0, 0
  circuit.cleared = circuit.generation
  if by_operator then
    circuit.hold, circuit.factor, circuit.slowed, circuit.why = 0, 1, 0, ''
    local slot, interval, delay = slots.slot_of(ctx, source), rates.interval_of(rates.rate_of(ctx, source)), asked_delay.binding_delay_of(ctx, source)
    local soonest = interval and ctx.now + math.max(interval, delay * 1000000) -- that is not ours to forgive
    if slot and soonest and slot > soonest then slots.set_slot(ctx, source, soonest) end
  end
  redis.call('DEL', ctx.K.window_of .. source)
  ctx.windows[source] = nil
  redis.call('SREM', ctx.K.temp_halted, source)
  redis.call('SREM', ctx.K.halted, source)
  ctx.halted[source] = false
  local by = by_operator and audit.operator_of(ctx, source, 'halt') or audit.worker_at_work(ctx)
  if not kind then return end
  circuit_changes.announce(ctx, ctx.K.resumed_events, 'crawl_resumed', source, kind, 'resumed from ' .. kind .. ' halt', why, by)
  report.note_incident(ctx, source, 'resumed', why)
end

function circuit_changes.close_if_passed(ctx, source)
  local circuit = circuits.circuit_of(ctx, source)
  if circuit.passed >= circuits.rules_of(ctx, source).probes then
    circuit_changes.close_circuit(ctx, source, 'temporary', text(circuit.passed) .. ' probes succeeded', false)
  end
end

-- Looks which of several sources have statuses; as a rule all of them.
function circuit_changes.look_up_statuses(ctx, sources)
  local keys = {}
  for index, source in ipairs(sources) do keys[index] = ctx.K.statuses_of .. source end
  if #keys == 0 or redis.call('EXISTS', unpack(keys)) < #keys then return end
  for _, source in ipairs(sources) do ctx.on_record[source] = true end
end

-- An operator who deletes the statuses clears what they have led to.
function circuit_changes.statuses_deleted(ctx, source)
  if ctx.on_record[source] or redis.call('EXISTS', ctx.K.statuses_of .. source) == 1 then return false end
  local circuit = circuits.circuit_of(ctx, source)
  return circuit.noted == 1 or (circuit.state == 'closed' and redis.call('EXISTS', ctx.K.window_of .. source) == 1)
end
