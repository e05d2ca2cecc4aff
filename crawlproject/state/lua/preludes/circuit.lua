-- Circuits: what the results of a source say about it, and what that holds back.
-- needs: clock
-- types: set halted, hash options
--
-- A circuit is closed: each result is a sample in a sliding window, and too many errors open it;
--    open: nothing goes out until `ends`; then half_open: a few probes go out, and decide. All fine: closed.
--    An error: open again, for twice as long. Or halted: nothing goes out until an operator resumes it, after
--    many errors in a row, after some open periods in a row without a success, or by the operator's own order.
-- `generation` counts the changes of state. A lease carries that of its grant; the result of an older one
--    neither opens nor closes anything, so that what was in flight at a trip cannot bring about the next. But it is
--    one of the results in a row: an error adds to `run`, a success ends it and `periods`, the open periods since the
--    last success. Not so the results of a generation older than `cleared`, that of the last closing: what was sent
--    before an operator resumed a source is not held against it either.
-- `hold` is a moment before which nothing goes out (Retry-After). `factor` is the part of its limit that the
--    source is crawled at, `slowed` the moment it was last lowered, `quiet` since when it had no reason to be.
-- `rests`: it is all that is left of a source that was quiet, and expires (see forget_quiet.lua).
-- `noted` is 1 when statuses of the source were on record at the last change of state, or since: when they are
--    missing afterwards, an operator has deleted them, which clears what they have led to.
--
-- `A.circuit`: the rules (config/circuit_rules.py); the catalogue may have others for a source (K.options).

local NUMBERS = {'ends', 'generation', 'opens', 'run', 'probing', 'passed', 'hold', 'factor', 'slowed', 'quiet', 'noted',
  'periods', 'cleared'}
local STATES = {closed = 'closed', open = 'open', half_open = 'half_open', halted = 'halted'}
local TENTH_BACK_EVERY_US = 60000000 -- of quiet: that gives back a tenth of the limit
local LEAST_FACTOR = 1 / 32
-- The least that a rule may be.
local LEAST = {window = 1000000, samples = 0, errors = 0, open = 1, open_max = 1, probes = 1, halt_after = 1,
  halt_periods = 1}

local UNTROUBLED = {__index = {state = 'closed', why = '', ends = 0, generation = 0, opens = 0, run = 0, probing = 0,
  passed = 0, hold = 0, factor = 1, slowed = 0, quiet = 0, noted = 0, periods = 0, cleared = 0}}

local circuits, rules_of_sources, halted = {}, {}, {} -- what this script knows

local function is_halted(source)
  if halted[source] == nil then halted[source] = redis.call('SISMEMBER', K.halted, source) == 1 end
  return halted[source]
end

-- Reads of several sources at once whether they are halted.
local function look_up_halted(sources)
  for first = 1, #sources, 1000 do
    local members = read('set', 'SMISMEMBER', K.halted, unpack(sources, first, math.min(first + 999, #sources)))
    for index, member in ipairs(members) do halted[sources[first + index - 1]] = member == 1 end
  end
end

local function circuit_of(source)
  local circuit = circuits[source]
  if circuit then return circuit end
  local fields = attempt('HGETALL', K.circuit_of .. source)
  if fields and #fields == 0 then -- most sources have never been in trouble
    circuit = setmetatable({}, UNTROUBLED)
  else
    local found = {}
    for index = 1, #(fields or {}), 2 do found[fields[index]] = fields[index + 1] end
    circuit = {state = STATES[found.state] or 'closed', why = found.why or '', rests = found.rests}
    for _, name in ipairs(NUMBERS) do circuit[name] = number(found[name], 0) or 0 end
    circuit.generation = math.floor(circuit.generation)
    if circuit.factor < LEAST_FACTOR then circuit.factor = 1 end
    if not fields then -- its state cannot be known: nothing goes out
      circuit.broken, circuit.hold = true, now + 5000000
    end
  end
  circuits[source] = circuit
  return circuit
end

-- Looks at several sources at once: as a rule none of them has ever been in trouble.
local function look_up_circuits(sources)
  if not none_has(K.circuit_of, sources) then return end
  for _, source in ipairs(sources) do circuits[source] = setmetatable({}, UNTROUBLED) end
end

-- What the catalogue says of a source; nothing, where that is not a JSON object.
local function parse_options(source, options)
  if not options then return {} end
  local good, found = pcall(cjson.decode, options)
  if good and type(found) == 'table' then return found end
  report_data_fault('WRONGTYPE ' .. K.options .. ' does not hold a JSON object for ' .. source .. ': remove that field')
  return {}
end

local function options_of(source) return parse_options(source, redis.call('HGET', K.options, source)) end

local function note_rules(source, options)
  local own = options.circuit
  if type(own) ~= 'table' then
    rules_of_sources[source] = A.circuit
    return
  end
  local rules = {}
  for name, value in pairs(A.circuit) do
    local good = type(own[name]) == 'number' and number(own[name], LEAST[name])
    rules[name] = good or value
  end
  rules_of_sources[source] = rules
end

-- Reads the rules of several sources at once.
local function look_up_rules(sources)
  for first = 1, #sources, 1000 do
    local last = math.min(first + 999, #sources)
    for index, options in ipairs(read('hash', 'HMGET', K.options, unpack(sources, first, last))) do
      local source = sources[first + index - 1]
      note_rules(source, parse_options(source, options))
    end
  end
end

local function rules_of(source)
  if not rules_of_sources[source] then note_rules(source, options_of(source)) end
  return rules_of_sources[source]
end

-- The part of its limit that a source is crawled at now: each quiet minute has given back a tenth.
local function factor_of(circuit)
  if circuit.factor >= 1 then return 1 end
  return math.min(1, circuit.factor + math.floor((now - circuit.quiet) / TENTH_BACK_EVERY_US) / 10)
end

-- How many probes may go out now, in half_open.
local function probes_left(source)
  local circuit = circuit_of(source)
  return math.max(math.ceil(rules_of(source).probes) - circuit.probing - circuit.passed, 0)
end
