-- Second prelude of every script: how a source has borne us, and what that holds back.
--
-- A circuit is closed: each result is a sample in a sliding window, and too many errors open it;
--    open: nothing goes out until `ends`; then half_open: a few probes go out, and decide. All fine: closed.
--    An error: open again, for twice as long. Or halted: nothing goes out until an operator says so, after
--    many errors in a row or at the operator's word.
-- `generation` counts the changes of state. A lease carries that of its grant; the result of an older one
--    decides nothing, so that what was in flight at a trip cannot bring about the next.
-- `hold` is a moment before which nothing goes out (Retry-After). `factor` is the part of its limit that the
--    source is asked at, `slowed` the moment it was last lowered, `quiet` since when it had no reason to be.
--
-- `A.circuit`: the rules (politeness/circuit.py); the catalogue may have others for a source (K.options).
-- What is changed here is written once, at the end of a script: save_circuits(), save_windows().

local NUMBERS = {'ends', 'generation', 'opens', 'run', 'probing', 'passed', 'hold', 'factor', 'slowed', 'quiet', 'noted'}
local STATES = {closed = 'closed', open = 'open', half_open = 'half_open', halted = 'halted'}
local TENTH_BACK_EVERY = 60000000 -- us of quiet that give back a tenth of the limit
local SLOWED_AT_MOST_EVERY = 10000000 -- us
local LEAST_FACTOR = 1 / 32
local BUCKETS = 60
-- The least that a rule may be.
local LEAST = {window = 1000000, samples = 0, errors = 0, open = 1, open_max = 1, probes = 1, halt_after = 1}

local circuits, changed, windows, rules_cache = {}, {}, {}, {}

local function circuit_of(source)
  local circuit = circuits[source]
  if not circuit then
    local values = attempt('HMGET', K.circuit_of .. source, 'state', 'why', unpack(NUMBERS))
    local broken = not values -- no telling how it stands: nothing goes out
    values = values or {}
    circuit = {state = STATES[values[1]] or 'closed', why = values[2] or '', broken = broken}
    for index, name in ipairs(NUMBERS) do circuit[name] = number(values[index + 2], 0) or 0 end
    circuit.generation = math.floor(circuit.generation)
    if circuit.factor < LEAST_FACTOR then circuit.factor = 1 end
    if broken then circuit.hold = now + 5000000 end
    circuits[source] = circuit
  end
  return circuit
end

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
    if not circuit.broken then
      redis.call('HSET', K.circuit_of .. source, 'state', circuit.state, 'why', circuit.why, unpack(values))
    end
    redis.call('SADD', K.troubled, source)
  end
end

-- What the catalogue says of a source; nothing, where that is no JSON of ours.
local function options_of(source)
  local options = redis.call('HGET', K.options, source)
  if not options then return {} end
  local good, found = pcall(cjson.decode, options)
  if good and type(found) == 'table' then return found end
  complain('WRONGTYPE ' .. K.options .. ' holds no JSON object for ' .. source .. ': remove that field')
  return {}
end

local function rules_of(source)
  local rules = rules_cache[source]
  if not rules then
    local own = options_of(source).circuit
    if type(own) ~= 'table' then own = {} end
    rules = {}
    for name, value in pairs(A.circuit) do
      local good = type(own[name]) == 'number' and number(own[name], LEAST[name])
      rules[name] = good or value
    end
    rules_cache[source] = rules
  end
  return rules
end

-- The part of its limit that a source is asked at now: each quiet minute has given back a tenth.
local function factor_of(circuit)
  if circuit.factor >= 1 then return 1 end
  return math.min(1, circuit.factor + math.floor((now - circuit.quiet) / TENTH_BACK_EVERY) / 10)
end

local function slow_down(source, share, why)
  local circuit = change(source)
  circuit.factor, circuit.quiet = factor_of(circuit), now
  if now - circuit.slowed >= SLOWED_AT_MOST_EVERY then
    circuit.factor, circuit.slowed = math.max(circuit.factor * share, LEAST_FACTOR), now
    circuit.why = why
  end
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

local function status_counts(source)
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
  -- A name that only an operator has spelled may be no UTF-8; JSON must be.
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
  circuit.noted = redis.call('EXISTS', K.statuses_of .. source)
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
  enter(source, 'half_open')
  redis.call('SREM', K.temp_halted, source)
end

local function halt(source, why)
  enter(source, 'halted')
  redis.call('SREM', K.temp_halted, source)
  redis.call('SADD', K.halted, source)
  announce(K.halted_events, source, 'permanent', why)
end

-- Closed, with nothing counted against it; at the full rate again when an operator says so.
local function close_circuit(source, kind, why, full_rate)
  local circuit = enter(source, 'closed')
  circuit.opens, circuit.run, circuit.ends, circuit.noted = 0, 0, 0, 0
  if full_rate then
    circuit.hold, circuit.factor, circuit.slowed, circuit.why = 0, 1, 0, ''
    local slot, interval = tonumber(redis.call('ZSCORE', K.slots, source) or ''), interval_of(rate_of(source))
    if slot and interval and slot > now + interval then redis.call('ZADD', K.slots, text(now + interval), source) end
  end
  redis.call('DEL', K.window_of .. source)
  windows[source] = nil
  redis.call('SREM', K.temp_halted, source)
  redis.call('SREM', K.halted, source)
  if kind then announce(K.resumed_events, source, kind, why) end
end

-- Samples

-- The sliding window: what it holds (`all`, `errors`), the bucket of this moment, and how fast answers come.
local function window_of(source)
  local window = windows[source]
  if window then return window end
  local fields = attempt('HGETALL', K.window_of .. source) or {}
  local bucket = math.floor(now / (rules_of(source).window / BUCKETS))
  window = {number = bucket, all = 0, errors = 0, here = {0, 0}, heard = 0, usual = 0, recent = 0}
  for index = 1, #fields, 2 do
    local at, first, second = fields[index + 1]:match('^(%d+):(%d+):(%d+)$')
    at, first, second = number(at), number(first), number(second)
    if not (at and first and second) then
      -- none of ours
    elseif fields[index] == 'latency' then
      window.heard, window.usual, window.recent = at, first, second
    elseif at > bucket - BUCKETS and at <= bucket then
      window.all, window.errors = window.all + first + second, window.errors + second
      if at == bucket then window.here = {first, second} end
    end
  end
  windows[source] = window
  return window
end

local function save_windows()
  for source, window in pairs(windows) do
    local key = K.window_of .. source
    attempt('HSET', key, text(window.number % BUCKETS),
      string.format('%.0f:%.0f:%.0f', window.number, window.here[1], window.here[2]),
      'latency', string.format('%.0f:%.0f:%.0f', window.heard, window.usual, window.recent))
    redis.call('PEXPIRE', key, text(math.max(rules_of(source).window / 1000, 600000)))
  end
end

local function count(source, fine)
  local window, place = window_of(source), fine and 1 or 2
  window.here[place] = window.here[place] + 1
  window.all, window.errors = window.all + 1, window.errors + (fine and 0 or 1)
  return window.all, window.errors
end

-- A result that says something about the source: `fine` or not.
local function sample(source, generation, fine)
  local circuit, rules = circuit_of(source), rules_of(source)
  if generation ~= circuit.generation or circuit.state == 'open' or circuit.state == 'halted' then return end
  if not fine then
    change(source).run = circuit.run + 1
  elseif circuit.run > 0 then
    change(source).run = 0
  end
  if circuit.state == 'half_open' then
    change(source).probing = math.max(circuit.probing - 1, 0)
    if fine then circuit.passed = circuit.passed + 1 end
  end
  local all, errors = count(source, fine)
  if circuit.run >= rules.halt_after then
    halt(source, text(circuit.run) .. ' errors in a row')
  elseif circuit.state == 'half_open' then
    if not fine then
      open_circuit(source, 'a probe failed')
    elseif circuit.passed >= rules.probes then
      close_circuit(source, 'temporary', text(circuit.passed) .. ' probes went well', false)
    end
  elseif all > rules.samples and errors > rules.errors * all then
    open_circuit(source, string.format('%d errors of %d requests in %g s', errors, all, rules.window / 1000000))
  end
end

-- A lease that ends without a sample: a probe's place is free again, and one that the site has answered went well.
local function returned(source, generation, answered)
  local circuit = circuit_of(source)
  if circuit.state == 'half_open' and circuit.generation == generation and circuit.probing > 0 then
    change(source).probing = circuit.probing - 1
    if answered then
      circuit.passed = circuit.passed + 1
      if circuit.passed >= rules_of(source).probes then
        close_circuit(source, 'temporary', text(circuit.passed) .. ' probes went well', false)
      end
    end
  end
end

-- Strain: the time to the first byte, far above what this source takes as a rule. One slow answer says nothing,
-- so none counts for more than a few times the rule. The rule moves once in a bucket, slowly, also under strain:
-- who is slow for good is not held for it.
local function note_latency(source, micros)
  local window = window_of(source)
  if window.heard == 0 then window.usual, window.recent = micros, micros end
  micros = math.min(micros, 8 * window.usual + 1000000)
  window.recent = window.recent + (micros - window.recent) / 8
  if window.heard < 20 then
    window.heard = window.heard + 1
    window.usual = window.usual + (micros - window.usual) / window.heard
  elseif window.here[1] + window.here[2] == 0 then
    window.usual = window.usual + (micros - window.usual) / 256
  end
  if window.heard >= 20 and window.recent > 5 * window.usual and window.recent > window.usual + 1000000 then
    slow_down(source, 0.75, string.format('answers take %.1f s, %.1f s as a rule', window.recent / 1e6, window.usual / 1e6))
  end
end

-- An operator who deletes the statuses clears what they have led to.
local function statuses_deleted(source)
  if redis.call('EXISTS', K.statuses_of .. source) == 1 then return false end
  local circuit = circuit_of(source)
  return circuit.noted == 1 or (circuit.state == 'closed' and redis.call('EXISTS', K.window_of .. source) == 1)
end
