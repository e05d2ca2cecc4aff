-- Samples: results that say something about a source, in a sliding window, and how fast its answers come.
local samples = {}

local SLICES = 12 -- of a window
local SLOWED_AT_MOST_EVERY_US = 10000000

-- Source -> what its window holds by now: all samples, errors among them; and what is to be added to it at the end of the call.
function state.tallies() return {} end

function samples.tally_of(ctx, source)
  if ctx.tallies[source] then return ctx.tallies[source] end
  local window, length = windows.change(ctx, source), circuits.rules_of(ctx, source).window
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
  local host = windows.failing_host(windows.of(ctx, source).hosts)
  return host and ', all at ' .. audit.shown_name(ctx, host) or ''
end

-- Opens the circuit; after some open periods in a row without a success a further one would be of no use: halted.
function samples.trip(ctx, source, why, results)
  local circuit = circuits.change(ctx, source)
  if circuit.periods >= circuits.rules_of(ctx, source).halt_periods then
    circuits.halt(ctx, source, text(circuit.periods) .. ' open periods in a row without a success', circuit.run)
  else
    circuit.periods = circuit.periods + 1
    circuits.open(ctx, source, why, results)
  end
end

-- A result that says something about the source: `fine` or not.
function samples.sample(ctx, source, generation, fine)
  local circuit, rules = circuits.of(ctx, source), circuits.rules_of(ctx, source)
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
    local circuit = circuits.of(ctx, source)
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
