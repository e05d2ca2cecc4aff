-- Changes of circuits, and the events that tell of them.
-- needs: audit, circuit, rates, slots, asked_delay, requests
-- types: set temp_halted watchlist, stream halted_events resumed_events
--
-- Circuits are written once, at the end of a script, by save_circuits(), statuses by save_statuses().

local changed, windows = {}, {}
local statuses, on_record = {}, {} -- those to be written; whether a source has some

local function change(source)
  changed[source] = true
  return circuit_of(source)
end

local function save_circuits()
  for source in pairs(changed) do
    local circuit, values = circuits[source], {}
    for _, name in ipairs(NUMBERS) do
      values[#values + 1] = name
      values[#values + 1] = string.format('%.17g', circuit[name])
    end
    if circuit.rests then
      redis.call('HDEL', K.circuit_of .. source, 'rests')
      redis.call('PERSIST', K.circuit_of .. source)
    end
    if not circuit.broken then
      redis.call('HSET', K.circuit_of .. source, 'state', circuit.state, 'why', circuit.why, unpack(values))
    end
    redis.call('SADD', K.watchlist, source)
  end
end

-- A lease of this generation is over: where it was a probe, another may go out. Returns whether it was one.
local function free_probe(source, generation)
  local circuit = circuit_of(source)
  if circuit.state ~= 'half_open' or circuit.generation ~= generation or circuit.probing == 0 then return false end
  change(source).probing = circuit.probing - 1
  return true
end

-- Notes a status of a source, for save_statuses().
local function note_status(source, status)
  local noted = statuses[source]
  if noted then noted[#noted + 1] = status else statuses[source] = {status} end
end

local function save_statuses_of(source)
  local noted = statuses[source]
  if not noted then return end
  statuses[source] = nil
  local length = attempt('LPUSH', K.statuses_of .. source, unpack(noted))
  if length and length > 50 then redis.call('LTRIM', K.statuses_of .. source, 0, 49) end
end

local function save_statuses()
  for source in pairs(statuses) do save_statuses_of(source) end
end

-- The newest `most` statuses of a source as JSON, as in {"200": 34, "503": 6}.
local function response_codes(source, most)
  save_statuses_of(source)
  local counts, names, parts = {}, {}, {}
  for _, status in ipairs(most > 0 and attempt('LRANGE', K.statuses_of .. source, 0, most - 1) or {}) do
    status = status:sub(1, 20):gsub('[%c"\\\128-\255]', '?')
    if not counts[status] then names[#names + 1] = status end
    counts[status] = (counts[status] or 0) + 1
  end
  table.sort(names)
  for _, name in ipairs(names) do parts[#parts + 1] = '"' .. name .. '": ' .. counts[name] end
  return '{' .. table.concat(parts, ', ') .. '}'
end

-- Tells of a change of state: `what` happened, why, by whom, and how many of the last statuses have led to it (all 50).
local function announce(stream, name, source, kind, what, why, by, results)
  local shown = shown_name(source)
  local msg = shown .. ' ' .. what .. '. Response codes: ' .. response_codes(source, math.min(results or 50, 50))
  note_change(name, {source = shown, type = kind, msg = msg, reason = why, by = by}, stream)
end

-- Changes of state

local function enter(source, state)
  local circuit = change(source)
  circuit.state, circuit.generation = state, circuit.generation + 1
  circuit.probing, circuit.passed = 0, 0
  circuit.noted = statuses[source] and 1 or redis.call('EXISTS', K.statuses_of .. source)
  return circuit
end

-- `results`: how many there were in the window that tripped it; without it an operator has done so.
local function open_circuit(source, why, results)
  local rules, circuit = rules_of(source), enter(source, 'open')
  circuit.opens = circuit.opens + 1
  circuit.ends = now + math.min(rules.open * 2 ^ math.min(circuit.opens - 1, 30), rules.open_max)
  redis.call('SADD', K.temp_halted, source)
  local what = results and 'tripped temporary halt' or 'was put on temporary halt'
  local by = results and worker_at_work() or operator_of(source, 'halt')
  announce(K.halted_events, 'crawl_halted', source, 'temporary', what, why, by, results)
  note_incident(source, 'opened', why, 'opened')
end

local function let_probes_out(source)
  enter(source, 'half_open').ends = now -- it may have been over for long: see watch.lua
  redis.call('SREM', K.temp_halted, source)
  announce(nil, 'crawl_probing', source, 'temporary', 'is probed', 'its open period is over', worker_at_work())
end

-- `results`: how many errors in a row there were; without it an operator has halted it.
local function halt(source, why, results)
  enter(source, 'halted')
  redis.call('SREM', K.temp_halted, source)
  redis.call('SADD', K.halted, source)
  halted[source] = true
  local what = results and 'tripped permanent halt' or 'was put on permanent halt'
  local by = results and worker_at_work() or operator_of(source, 'halt')
  announce(K.halted_events, 'crawl_halted', source, 'permanent', what, why, by, results)
  note_incident(source, 'halted', why, 'halted')
end

-- Closed, with nothing counted against it; `by_operator` also at the full rate again.
local function close_circuit(source, kind, why, by_operator)
  local circuit = enter(source, 'closed')
  circuit.opens, circuit.run, circuit.periods, circuit.ends, circuit.noted = 0, 0, 0, 0, 0
  circuit.cleared = circuit.generation
  if by_operator then
    circuit.hold, circuit.factor, circuit.slowed, circuit.why = 0, 1, 0, ''
    local slot, interval, delay = slot_of(source), interval_of(rate_of(source)), binding_delay_of(source)
    local soonest = interval and delay and now + math.max(interval, delay * 1000000) -- that is not ours to forgive
    if slot and soonest and slot > soonest then set_slot(source, soonest) end
  end
  redis.call('DEL', K.window_of .. source)
  windows[source] = nil
  redis.call('SREM', K.temp_halted, source)
  redis.call('SREM', K.halted, source)
  halted[source] = false
  local by = by_operator and operator_of(source, 'halt') or worker_at_work()
  if not kind then return end
  announce(K.resumed_events, 'crawl_resumed', source, kind, 'resumed from ' .. kind .. ' halt', why, by)
  note_incident(source, 'resumed', why)
end

local function close_if_passed(source)
  local circuit = circuit_of(source)
  if circuit.passed >= rules_of(source).probes then
    close_circuit(source, 'temporary', text(circuit.passed) .. ' probes succeeded', false)
  end
end

-- Looks which of several sources have statuses; as a rule all of them.
local function look_up_statuses(sources)
  local keys = {}
  for index, source in ipairs(sources) do keys[index] = K.statuses_of .. source end
  if #keys == 0 or redis.call('EXISTS', unpack(keys)) < #keys then return end
  for _, source in ipairs(sources) do on_record[source] = true end
end

-- An operator who deletes the statuses clears what they have led to.
local function statuses_deleted(source)
  if on_record[source] or redis.call('EXISTS', K.statuses_of .. source) == 1 then return false end
  local circuit = circuit_of(source)
  return circuit.noted == 1 or (circuit.state == 'closed' and redis.call('EXISTS', K.window_of .. source) == 1)
end
