-- Changes of circuits, and the events that tell of them.
-- needs: circuit, rates, slots, asked_delay
-- types: set temp_halted watchlist sources, stream halted_events resumed_events
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

-- Events

local function iso_time()
  local seconds = math.floor(server_time / 1000000)
  local days = math.floor(seconds / 86400)
  -- Howard Hinnant, "chrono-compatible low-level date algorithms": civil_from_days
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local day, month = doy - math.floor((153 * mp + 2) / 5) + 1, mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  local rest = seconds % 86400
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03d+00:00', year, month, day, math.floor(rest / 3600),
    math.floor(rest / 60) % 60, rest % 60, math.floor(server_time / 1000) % 1000)
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

local function status_counts(source)
  save_statuses_of(source)
  local counts, names, parts = {}, {}, {}
  for _, status in ipairs(attempt('LRANGE', K.statuses_of .. source, 0, 49) or {}) do
    status = status:sub(1, 20):gsub('[%c\128-\255]', '?')
    if not counts[status] then names[#names + 1] = status end
    counts[status] = (counts[status] or 0) + 1
  end
  table.sort(names)
  for _, name in ipairs(names) do parts[#parts + 1] = name .. ': ' .. counts[name] end
  return #parts > 0 and 'last statuses ' .. table.concat(parts, ', ') or 'no statuses yet'
end

local function announce(stream, source, kind, why)
  -- A name that only an operator has spelled may not be UTF-8; JSON must be.
  local known = redis.call('SISMEMBER', K.sources, source) == 1
  local name = known and source or source:gsub('[\128-\255]', '?')
  local event = {source = name, type = kind, msg = why .. '; ' .. status_counts(source), time = iso_time()}
  redis.call('XADD', stream, '*', 'event', (cjson.encode(event):gsub('\\/', '/')))
end

-- Changes of state

local function enter(source, state)
  local circuit = change(source)
  circuit.state, circuit.generation = state, circuit.generation + 1
  circuit.probing, circuit.passed = 0, 0
  circuit.noted = statuses[source] and 1 or redis.call('EXISTS', K.statuses_of .. source)
  return circuit
end

local function open_circuit(source, why)
  local rules, circuit = rules_of(source), enter(source, 'open')
  circuit.opens = circuit.opens + 1
  circuit.ends = now + math.min(rules.open * 2 ^ math.min(circuit.opens - 1, 30), rules.open_max)
  redis.call('SADD', K.temp_halted, source)
  announce(K.halted_events, source, 'temporary', why)
end

local function let_probes_out(source)
  enter(source, 'half_open').ends = now -- it may have been over for long: see watch.lua
  redis.call('SREM', K.temp_halted, source)
end

local function halt(source, why)
  enter(source, 'halted')
  redis.call('SREM', K.temp_halted, source)
  redis.call('SADD', K.halted, source)
  halted[source] = true
  announce(K.halted_events, source, 'permanent', why)
end

-- Closed, with nothing counted against it; at the full rate again when an operator says so.
local function close_circuit(source, kind, why, full_rate)
  local circuit = enter(source, 'closed')
  circuit.opens, circuit.run, circuit.periods, circuit.ends, circuit.noted = 0, 0, 0, 0, 0
  circuit.cleared = circuit.generation
  if full_rate then
    circuit.hold, circuit.factor, circuit.slowed, circuit.why = 0, 1, 0, ''
    local slot, interval, delay = slot_of(source), interval_of(rate_of(source)), robots_delay_of(source)
    local soonest = interval and delay and now + math.max(interval, delay * 1000000) -- that is not ours to forgive
    if slot and soonest and slot > soonest then set_slot(source, soonest) end
  end
  redis.call('DEL', K.window_of .. source)
  windows[source] = nil
  redis.call('SREM', K.temp_halted, source)
  redis.call('SREM', K.halted, source)
  halted[source] = false
  if kind then announce(K.resumed_events, source, kind, why) end
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
