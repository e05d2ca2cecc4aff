-- Samples: results that say something about a source, in a sliding window; how fast its answers come, and how long
-- whole fetches take.
--
-- Windows are written once, at the end of a call, by samples.save_windows().
local samples = {}

function state.windows() return {} end

local BUCKETS = 60
local SLOWED_AT_MOST_EVERY_US = 10000000

-- The numbers that stand in a field; nothing, where there is none.
function samples.three_numbers(value)
  local first, second, third = (value or ''):match('^(%d+):(%d+):(%d+)$')
  return tonumber(first), tonumber(second), tonumber(third)
end

-- What the buckets of a window hold in all, where `sum` does not tell.
function samples.sum_of_buckets(ctx, key, newest)
  local sum_fine, sum_errors, fields = 0, 0, redis.call('HGETALL', key)
  for index = 1, #fields, 2 do
    local at, fine, errors = samples.three_numbers(fields[index + 1])
    if tonumber(fields[index]) and at > newest - BUCKETS and at <= newest then
      sum_fine, sum_errors = sum_fine + fine, sum_errors + errors
    end
  end
  return sum_fine, sum_errors
end

-- What the buckets held that have left a window since it was last changed: their places in the ring are to be used anew.
function samples.sum_that_left(ctx, key, changed_at, newest)
  local places, sum_fine, sum_errors = {}, 0, 0
  for bucket = changed_at + 1, newest do places[#places + 1] = text(bucket % BUCKETS) end
  for index, value in ipairs(redis.call('HMGET', key, unpack(places))) do
    local at, fine, errors = samples.three_numbers(value)
    if at == changed_at + index - BUCKETS then sum_fine, sum_errors = sum_fine + fine, sum_errors + errors end
  end
  return sum_fine, sum_errors
end

-- The sliding window, a ring of buckets: what it holds (`fine`, `errors`), the bucket of this moment (`here`), and how
-- fast answers come. The field `sum` says what it held at its last change, so that not all buckets need to be read.
function samples.window_of(ctx, source)
  local window = ctx.windows[source]
  if window then return window end
  local key, bucket = ctx.K.window_of .. source, math.floor(ctx.now / (circuits.rules_of(ctx, source).window / BUCKETS))
  window = {number = bucket, fine = 0, errors = 0, here = {0, 0}, fresh = true, heard = 0, usual = 0, recent = 0}
  ctx.windows[source] = window
  local fields = redis.call('HMGET', key, text(bucket % BUCKETS), 'latency', 'sum', 'fetches', 'hosts')
  window.packed_fetches, window.packed_hosts = fields[4], fields[5]
  local at, fine, errors = samples.three_numbers(fields[1])
  if at == bucket then window.here, window.fresh = {fine, errors}, false end
  local heard, usual, recent = samples.three_numbers(fields[2])
  if heard then window.heard, window.usual, window.recent = heard, usual, recent end
  at, fine, errors = samples.three_numbers(fields[3])
  -- A bucket that is there after the sum was saved: the clock had stepped back a little. Then all is counted anew.
  local follows = at and at <= bucket and (at == bucket or window.fresh)
  if follows and math.floor(at / BUCKETS) == math.floor(bucket / BUCKETS) then
    local left_fine, left_errors = 0, 0
    if at < bucket then left_fine, left_errors = samples.sum_that_left(ctx, key, at, bucket) end
    window.fine, window.errors = math.max(fine - left_fine, 0), math.max(errors - left_errors, 0)
  elseif fields[2] or fields[3] then -- once in each turn of the ring, so that no mistake stays
    window.fine, window.errors = samples.sum_of_buckets(ctx, key, bucket)
  end
  return window
end

-- A histogram of how long fetches took, bucket -> how many, as one field of the window: {turn, bucket, count, bucket,
-- count, ...}. Every five minutes, a turn, all counts are halved, so that it is of the last few minutes.
-- Numbers of the last minutes are halved every five minutes, a turn.
function samples.turn(ctx) return math.floor(ctx.now / 300000000) end

function samples.unpack_fetches(ctx, packed)
  local fetches, values = {}, packed and cmsgpack.unpack(packed) or {0}
  local share = 2 ^ math.min(values[1] - samples.turn(ctx), 0)
  for place = 2, #values, 2 do fetches[values[place]] = math.floor(values[place + 1] * share) end
  return fetches
end

function samples.pack_fetches(ctx, fetches)
  local values = {samples.turn(ctx)}
  for bucket, count in pairs(fetches) do
    if count > 0 then values[#values + 1], values[#values + 2] = bucket, count end
  end
  return cmsgpack.pack(values)
end

-- A fetch that took as long as `bucket` says, to its last byte or its time-out.
function samples.note_fetch(ctx, source, bucket)
  local window = samples.window_of(ctx, source)
  window.fetches = window.fetches or samples.unpack_fetches(ctx, window.packed_fetches)
  window.fetches[bucket] = (window.fetches[bucket] or 0) + 1
end

-- A result came from this host.
function samples.note_host(ctx, source, host, fine)
  local window = samples.window_of(ctx, source)
  window.hosts = window.hosts or samples.unpack_hosts(ctx, window.packed_hosts)
  samples.add_to_hosts(window.hosts, host, fine)
end

-- Where all errors come from one of several hosts, that host, as the end of a sentence.
function samples.where_errors_come_from(ctx, source)
  local window = samples.window_of(ctx, source)
  local host = samples.failing_host(window.hosts or samples.unpack_hosts(ctx, window.packed_hosts))
  return host and ', all at ' .. audit.shown_name(ctx, host) or ''
end

function samples.save_windows(ctx)
  for source, window in pairs(ctx.windows) do
    local key = ctx.K.window_of .. source
    local fields = {text(window.number % BUCKETS),
      string.format('%d:%d:%d', window.number, window.here[1], window.here[2]),
      'latency', string.format('%d:%d:%d', window.heard, window.usual, window.recent),
      'sum', string.format('%d:%d:%d', window.number, window.fine, window.errors)}
    if window.fetches then fields[#fields + 1], fields[#fields + 2] = 'fetches', samples.pack_fetches(ctx, window.fetches) end
    if window.hosts then fields[#fields + 1], fields[#fields + 2] = 'hosts', samples.pack_hosts(ctx, window.hosts) end
    redis.call('HSET', key, unpack(fields))
    if window.fresh then
      redis.call('PEXPIRE', key, text(math.max(circuits.rules_of(ctx, source).window / 1000, 600000)))
    end
  end
end

-- Returns the samples in the window, and the errors among them.
function samples.count_sample(ctx, source, fine)
  local window = samples.window_of(ctx, source)
  if fine then
    window.here[1], window.fine = window.here[1] + 1, window.fine + 1
  else
    window.here[2], window.errors = window.here[2] + 1, window.errors + 1
  end
  return window.fine + window.errors, window.errors
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
-- says nothing, so none counts for more than a few times the usual. The usual moves once in a bucket, slowly, also
-- during a back-off: a source that stays slow is not slowed down for good.
function samples.note_latency(ctx, source, micros)
  local window = samples.window_of(ctx, source)
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
    local why = string.format('answers take %.1f s, usually %.1f s', window.recent / 1e6, window.usual / 1e6)
    samples.slow_down(ctx, source, 0.75, why)
  end
end

-- Which hosts the results of a source came from: a field of its window, of the last minutes.
--
-- {turn, host, fine, errors, host, fine, errors, ...}, of the first eight hosts; those of all others stand under ''. Every
-- five minutes, a turn, all numbers are halved, and hosts without any make room.

local MOST_HOSTS = 8

function samples.unpack_hosts(ctx, packed)
  local hosts, values = {}, packed and cmsgpack.unpack(packed) or {0}
  local share = 2 ^ math.min(values[1] - samples.turn(ctx), 0)
  for place = 2, #values, 3 do
    local fine, errors = math.floor(values[place + 1] * share), math.floor(values[place + 2] * share)
    if fine + errors > 0 then hosts[#hosts + 1] = {name = values[place], fine = fine, errors = errors} end
  end
  return hosts
end

function samples.pack_hosts(ctx, hosts)
  local values = {samples.turn(ctx)}
  for _, host in ipairs(hosts) do
    for _, value in ipairs({host.name, host.fine, host.errors}) do values[#values + 1] = value end
  end
  return cmsgpack.pack(values)
end

function samples.add_to_hosts(hosts, name, fine)
  local found, others, count = nil, nil, 0
  for _, host in ipairs(hosts) do
    if host.name == '' then others = host else count = count + 1 end
    if host.name == name then found = host end
  end
  if not found and count >= MOST_HOSTS then found, name = others, '' end
  if not found then
    found = {name = name, fine = 0, errors = 0}
    hosts[#hosts + 1] = found
  end
  if fine then found.fine = found.fine + 1 else found.errors = found.errors + 1 end
end

-- The only one of several hosts that has errors; nil where there is no such.
function samples.failing_host(hosts)
  local failing, others_answer
  for _, host in ipairs(hosts) do
    if host.errors > 0 then
      if failing or host.name == '' then return nil end
      failing = host.name
    elseif host.fine > 0 then
      others_answer = true
    end
  end
  return others_answer and failing or nil
end
