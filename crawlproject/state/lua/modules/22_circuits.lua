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
--
-- `A.circuit`: the rules (config/circuit_rules.py); the catalogue may have others for a source (K.catalogue).
local circuits = {}

local TENTH_BACK_EVERY_US = 60000000 -- of quiet: that gives back a tenth of the limit
local LEAST_FACTOR = 1 / 32

local KEPT_MS = 86400000 -- that what is known of a circuit lasts which holds nothing back, or is half open and has nothing to probe
local KEPT_OF_TROUBLED_S, KEPT_OF_OTHERS_S = 7776000, 3600 -- that statuses last

local UNTROUBLED = {__index = {state = 'closed', why = '', ends = 0, generation = 0, opens = 0, run = 0, probing = 0,
  passed = 0, hold = 0, factor = 1, slowed = 0, quiet = 0, periods = 0, cleared = 0}}

reads('halted', function(ctx, sources) return members_of(ctx.K.halted, sources) end)

reads('circuits', function(ctx, sources)
  local found = strings(ctx.K.circuit_of, sources)
  for index, packed in ipairs(found) do found[index] = setmetatable(packed and cmsgpack.unpack(packed) or {}, UNTROUBLED) end
  return found
end)

reads('rules_of', function(ctx, sources)
  local found = read_all('HMGET', ctx.K.catalogue, sources)
  for index, row in ipairs(found) do
    local has_own = row and row:find('"circuit"', 1, true)
    local own = has_own and cjson.decode((select(3, rates.parts_of_row(row)))).circuit
    found[index] = own and setmetatable(own, {__index = ctx.A.circuit}) or ctx.A.circuit
  end
  return found
end)

-- The part of its limit that a source is crawled at now: each quiet minute has given back a tenth.
function circuits.factor_of(ctx, circuit)
  if circuit.factor >= 1 then return 1 end
  return math.min(1, circuit.factor + math.floor((ctx.now - circuit.quiet) / TENTH_BACK_EVERY_US) / 10)
end

-- How many probes may go out now, in half_open.
function circuits.probes_left(ctx, source)
  local circuit = ctx.circuits[source]
  return math.max(math.ceil(ctx.rules_of[source].probes) - circuit.probing - circuit.passed, 0)
end

-- Changes of circuits, and the events that tell of them.

-- source -> true: its circuit is to be written
function state.changed() return {} end
-- source -> its statuses that are to be written
function state.statuses() return {} end

function circuits.change(ctx, source)
  ctx.changed[source] = true
  return ctx.circuits[source]
end

-- Whether something holds a source back, or slows it down: then the leader looks at it (watch.lua).
function circuits.is_troubled(ctx, source)
  local circuit = ctx.circuits[source]
  return circuit.state ~= 'closed' or circuit.hold > ctx.now or circuits.factor_of(ctx, circuit) < 1
end

-- A lease of this generation is over: where it was a probe, another may go out. Returns whether it was one.
function circuits.free_probe(ctx, source, generation)
  local circuit = ctx.circuits[source]
  if circuit.state ~= 'half_open' or circuit.generation ~= generation or circuit.probing == 0 then return false end
  circuits.change(ctx, source).probing = circuit.probing - 1
  return true
end

-- Notes a status of a source.
function circuits.note_status(ctx, source, status)
  local noted = ctx.statuses[source]
  if noted then noted[#noted + 1] = status else ctx.statuses[source] = {status} end
end

function circuits.save_statuses_of(ctx, source)
  local noted = ctx.statuses[source]
  if not noted then return end
  ctx.statuses[source] = nil
  local key = ctx.K.statuses_of .. source
  if redis.call('LPUSH', key, unpack(noted)) > 50 then redis.call('LTRIM', key, 0, 49) end
  redis.call('EXPIRE', key, circuits.is_troubled(ctx, source) and KEPT_OF_TROUBLED_S or KEPT_OF_OTHERS_S)
end

at_end('statuses', function(ctx)
  for source in pairs(ctx.statuses) do circuits.save_statuses_of(ctx, source) end
end)

at_end('changed', function(ctx)
  for source in pairs(ctx.changed) do
    ctx.touched[source] = true
    local key, packed = ctx.K.circuit_of .. source, cmsgpack.pack(ctx.circuits[source])
    local is_troubled = circuits.is_troubled(ctx, source)
    redis.call('SET', key, packed)
    if not is_troubled or ctx.circuits[source].state == 'half_open' then redis.call('PEXPIRE', key, KEPT_MS) end
    if is_troubled then redis.call('SADD', ctx.K.watchlist, source) end
    redis.call('EXPIRE', ctx.K.statuses_of .. source, is_troubled and KEPT_OF_TROUBLED_S or KEPT_OF_OTHERS_S)
  end
end)

-- The newest `most` statuses of a source as JSON, as in {"200": 34, "503": 6}.
function circuits.response_codes(ctx, source, most)
  circuits.save_statuses_of(ctx, source)
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
function circuits.announce(ctx, stream, name, source, kind, what, why, by, results)
  local shown = audit.shown_name(ctx, source)
  local msg = shown .. ' ' .. what .. '. Response codes: ' .. circuits.response_codes(ctx, source, math.min(results or 50, 50))
  audit.note(ctx, name, {source = shown, type = kind, msg = msg, reason = why, by = by}, stream)
end

-- Changes of state

function circuits.enter(ctx, source, state)
  local circuit = circuits.change(ctx, source)
  circuit.state, circuit.generation = state, circuit.generation + 1
  circuit.probing, circuit.passed = 0, 0
  return circuit
end

-- `results`: how many there were in the window that tripped it; without it an operator has done so.
function circuits.open(ctx, source, why, results)
  local rules, circuit = ctx.rules_of[source], circuits.enter(ctx, source, 'open')
  circuit.opens = circuit.opens + 1
  circuit.ends = ctx.now + math.min(rules.open * 2 ^ math.min(circuit.opens - 1, 30), rules.open_max)
  redis.call('SADD', ctx.K.temp_halted, source)
  local what = results and 'tripped temporary halt' or 'was put on temporary halt'
  local by = results and audit.worker_at_work(ctx) or audit.operator_of(ctx, source, 'halt')
  circuits.announce(ctx, ctx.K.halted_events, 'crawl_halted', source, 'temporary', what, why, by, results)
  report.note_incident(ctx, source, 'opened', why, 'opened')
end

function circuits.let_probes_out(ctx, source)
  circuits.enter(ctx, source, 'half_open')
  redis.call('SREM', ctx.K.temp_halted, source)
  local why, by = 'its open period is over', audit.worker_at_work(ctx)
  circuits.announce(ctx, nil, 'crawl_probing', source, 'temporary', 'is probed', why, by)
end

-- `results`: how many errors in a row there were; without it an operator has halted it.
function circuits.halt(ctx, source, why, results)
  circuits.enter(ctx, source, 'halted')
  redis.call('SREM', ctx.K.temp_halted, source)
  redis.call('SADD', ctx.K.halted, source)
  ctx.halted[source] = true
  local what = results and 'tripped permanent halt' or 'was put on permanent halt'
  local by = results and audit.worker_at_work(ctx) or audit.operator_of(ctx, source, 'halt')
  circuits.announce(ctx, ctx.K.halted_events, 'crawl_halted', source, 'permanent', what, why, by, results)
  report.note_incident(ctx, source, 'halted', why, 'halted')
end

-- Closed, with nothing counted against it; `by_operator` also at the full rate again.
function circuits.close(ctx, source, kind, why, by_operator)
  local circuit = circuits.enter(ctx, source, 'closed')
  circuit.opens, circuit.run, circuit.periods, circuit.ends = 0, 0, 0, 0
  circuit.cleared = circuit.generation
  if by_operator then
    circuit.hold, circuit.factor, circuit.slowed, circuit.why = 0, 1, 0, ''
  end
  windows.clear(ctx, source)
  redis.call('SREM', ctx.K.temp_halted, source)
  redis.call('SREM', ctx.K.halted, source)
  ctx.halted[source] = false
  local by = by_operator and audit.operator_of(ctx, source, 'halt') or audit.worker_at_work(ctx)
  if not kind then return end
  circuits.announce(ctx, ctx.K.resumed_events, 'crawl_resumed', source, kind, 'resumed from ' .. kind .. ' halt', why, by)
  report.note_incident(ctx, source, 'resumed', why)
end

function circuits.close_if_passed(ctx, source)
  local circuit = ctx.circuits[source]
  if circuit.passed >= ctx.rules_of[source].probes then
    circuits.close(ctx, source, 'temporary', text(circuit.passed) .. ' probes succeeded', false)
  end
end

-- Samples: results that say something about a source, in a sliding window, and how fast its answers come.
local samples = {}

local SLICES = 12 -- of a window
local SLOWED_AT_MOST_EVERY_US = 10000000

-- Source -> what its window holds by now: all samples, errors among them; and what is to be added to it at the end of the call.
function state.tallies() return {} end

function samples.tally_of(ctx, source)
  if ctx.tallies[source] then return ctx.tallies[source] end
  local window, length = windows.change(ctx, source), ctx.rules_of[source].window
  local slice = math.floor(ctx.now / (length / SLICES))
  if slice ~= window.slice then
    local passed = slice < window.slice and SLICES or slice - window.slice -- below: the rules have a longer window than they had
    window.results, window.slice, window.lasts = windows.shifted(window.results, 4 * passed, 4 * SLICES), slice, length / 1000
  end
  local tally, bytes = {all = 0, errors = 0, fine = 0, failed = 0, fetches = {}}, {window.results:byte(1, -1)}
  for place = 1, #bytes, 4 do
    local errors = bytes[place + 2] * 256 + bytes[place + 3]
    tally.all, tally.errors = tally.all + bytes[place] * 256 + bytes[place + 1] + errors, tally.errors + errors
  end
  ctx.tallies[source] = tally
  return tally
end

-- Returns the samples in the window, and the errors among them.
function samples.count_sample(ctx, source, fine)
  local tally = samples.tally_of(ctx, source)
  tally.all = tally.all + 1
  if fine then
    tally.fine = tally.fine + 1
  else
    tally.failed, tally.errors = tally.failed + 1, tally.errors + 1
  end
  return tally.all, tally.errors
end

-- A fetch took as long as `bucket` says, to its last byte or its time-out.
function samples.note_fetch(ctx, source, bucket)
  local fetches = samples.tally_of(ctx, source).fetches
  fetches[bucket] = (fetches[bucket] or 0) + 1
end

-- Where all errors come from one of several hosts, that host, as the end of a sentence.
function samples.where_errors_come_from(ctx, source)
  local host = windows.failing_host(ctx.windows[source].hosts)
  return host and ', all at ' .. audit.shown_name(ctx, host) or ''
end

-- Opens the circuit; after some open periods in a row without a success a further one would be of no use: halted.
function samples.trip(ctx, source, why, results)
  local circuit = circuits.change(ctx, source)
  if circuit.periods >= ctx.rules_of[source].halt_periods then
    circuits.halt(ctx, source, text(circuit.periods) .. ' open periods in a row without a success', circuit.run)
  else
    circuit.periods = circuit.periods + 1
    circuits.open(ctx, source, why, results)
  end
end

-- A result that says something about the source: `fine` or not.
function samples.sample(ctx, source, generation, fine)
  local circuit, rules = ctx.circuits[source], ctx.rules_of[source]
  if circuit.state == 'halted' or generation < circuit.cleared then return end
  if not fine then
    circuits.change(ctx, source).run = circuit.run + 1
  elseif circuit.run > 0 or circuit.periods > 0 then
    circuits.change(ctx, source).run, circuit.periods = 0, 0
  end
  local decides, all, errors = generation == circuit.generation and circuit.state ~= 'open', 0, 0
  if decides then
    if circuit.state == 'half_open' then
      circuits.change(ctx, source).probing = math.max(circuit.probing - 1, 0)
      if fine then circuit.passed = circuit.passed + 1 end
    end
    all, errors = samples.count_sample(ctx, source, fine)
  end
  if circuit.run >= rules.halt_after then
    local why = text(circuit.run) .. ' errors in a row' .. samples.where_errors_come_from(ctx, source)
    circuits.halt(ctx, source, why, circuit.run)
  elseif decides and circuit.state == 'half_open' then
    if not fine then
      samples.trip(ctx, source, 'a probe failed', all)
    else
      circuits.close_if_passed(ctx, source)
    end
  elseif decides and all > rules.samples and errors > rules.errors * all then
    local why = string.format('%d errors of %d requests in %g s', errors, all, rules.window / 1000000)
    samples.trip(ctx, source, why .. samples.where_errors_come_from(ctx, source), all)
  end
end

-- A lease that ends without a sample frees the place of its probe; one that the site has answered is a probe passed.
function samples.end_without_sample(ctx, source, generation, answered)
  if circuits.free_probe(ctx, source, generation) and answered then
    local circuit = ctx.circuits[source]
    circuit.passed, circuit.periods = circuit.passed + 1, 0
    circuits.close_if_passed(ctx, source)
  end
end

function samples.slow_down(ctx, source, share, why)
  local circuit = circuits.change(ctx, source)
  circuit.factor, circuit.quiet = circuits.factor_of(ctx, circuit), ctx.now
  if ctx.now - circuit.slowed >= SLOWED_AT_MOST_EVERY_US then
    circuit.factor, circuit.slowed = math.max(circuit.factor * share, LEAST_FACTOR), ctx.now
    circuit.why = why
    report.note_incident(ctx, source, 'slowed', string.format('%s: to %.3g %% of its rate', why, 100 * circuit.factor), 'slowed')
  end
end

-- Latency back-off: a source slows down when the time to its first byte is far above its usual one. One slow answer
-- says nothing, so none counts for more than a few times the usual. The usual moves once a second, slowly, also
-- during a back-off: a source that stays slow is not slowed down for good.
function samples.note_latency(ctx, source, micros)
  local window = windows.change(ctx, source)
  if window.heard == 0 then window.usual, window.recent = micros, micros end
  micros = math.min(micros, 8 * window.usual + 1000000)
  window.recent = window.recent + (micros - window.recent) / 8
  if window.heard < 20 then
    window.heard = window.heard + 1
    window.usual = window.usual + (micros - window.usual) / window.heard
  elseif ctx.now - window.moved >= 1000000 then
    window.usual, window.moved = window.usual + (micros - window.usual) / 256, ctx.now
  end
  if window.heard >= 20 and window.recent > 5 * window.usual and window.recent > window.usual + 1000000 then
    local why = string.format('answers take %.1f s, usually %.1f s', window.recent / 1e6, window.usual / 1e6)
    samples.slow_down(ctx, source, 0.75, why)
  end
end
