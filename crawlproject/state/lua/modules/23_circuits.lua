-- Circuits: what the results of a source say about it, and what that holds back.
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
local circuits = {}

local NUMBERS = {'ends', 'generation', 'opens', 'run', 'probing', 'passed', 'hold', 'factor', 'slowed', 'quiet', 'noted',
  'periods', 'cleared'}
local TENTH_BACK_EVERY_US = 60000000 -- of quiet: that gives back a tenth of the limit
local LEAST_FACTOR = 1 / 32

local UNTROUBLED = {__index = {state = 'closed', why = '', ends = 0, generation = 0, opens = 0, run = 0, probing = 0,
  passed = 0, hold = 0, factor = 1, slowed = 0, quiet = 0, noted = 0, periods = 0, cleared = 0}}

-- what this script knows
function state.circuits() return {} end
function state.rules_of_sources() return {} end
function state.halted() return {} end

function circuits.is_halted(ctx, source)
  if ctx.halted[source] == nil then ctx.halted[source] = redis.call('SISMEMBER', ctx.K.halted, source) == 1 end
  return ctx.halted[source]
end

-- Reads of several sources at once whether they are halted.
function circuits.look_up_halted(ctx, sources)
  for first = 1, #sources, 1000 do
    local members = redis.call('SMISMEMBER', ctx.K.halted, unpack(sources, first, math.min(first + 999, #sources)))
    for index, member in ipairs(members) do ctx.halted[sources[first + index - 1]] = member == 1 end
  end
end

function circuits.circuit_of(ctx, source)
  local circuit = ctx.circuits[source]
  if circuit then return circuit end
  local fields = redis.call('HGETALL', ctx.K.circuit_of .. source)
  if #fields == 0 then -- most sources have never been in trouble
    circuit = setmetatable({}, UNTROUBLED)
  else
    local found = {}
    for index = 1, #fields, 2 do found[fields[index]] = fields[index + 1] end
    circuit = {state = found.state or 'closed', why = found.why or '', rests = found.rests}
    for _, name in ipairs(NUMBERS) do circuit[name] = tonumber(found[name]) or 0 end
    if circuit.factor == 0 then circuit.factor = 1 end -- one that rests has none
  end
  ctx.circuits[source] = circuit
  return circuit
end

-- Looks at several sources at once: as a rule none of them has ever been in trouble.
function circuits.look_up_circuits(ctx, sources)
  if not none_has(ctx.K.circuit_of, sources) then return end
  for _, source in ipairs(sources) do ctx.circuits[source] = setmetatable({}, UNTROUBLED) end
end

-- Notes the rules of a source: `options` is what the catalogue says of it.
function circuits.note_rules(ctx, source, options)
  local own = options and cjson.decode(options).circuit
  ctx.rules_of_sources[source] = own and setmetatable(own, {__index = ctx.A.circuit}) or ctx.A.circuit
end

-- Reads the rules of several sources at once.
function circuits.look_up_rules(ctx, sources)
  for first = 1, #sources, 1000 do
    local last = math.min(first + 999, #sources)
    for index, options in ipairs(redis.call('HMGET', ctx.K.options, unpack(sources, first, last))) do
      circuits.note_rules(ctx, sources[first + index - 1], options)
    end
  end
end

function circuits.rules_of(ctx, source)
  if not ctx.rules_of_sources[source] then circuits.note_rules(ctx, source, redis.call('HGET', ctx.K.options, source)) end
  return ctx.rules_of_sources[source]
end

-- The part of its limit that a source is crawled at now: each quiet minute has given back a tenth.
function circuits.factor_of(ctx, circuit)
  if circuit.factor >= 1 then return 1 end
  return math.min(1, circuit.factor + math.floor((ctx.now - circuit.quiet) / TENTH_BACK_EVERY_US) / 10)
end

-- How many probes may go out now, in half_open.
function circuits.probes_left(ctx, source)
  local circuit = circuits.circuit_of(ctx, source)
  return math.max(math.ceil(circuits.rules_of(ctx, source).probes) - circuit.probing - circuit.passed, 0)
end
