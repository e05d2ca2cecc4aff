-- Windows: what is known of the last minutes of a source. Each is one map (msgpack):
--    {results (successes and errors in each slice of its circuit's window), slice (the newest of them), lasts (ms for which its
--    circuit needs them); turn (five minutes), and of that hosts (-> {fine, errors}; '': all but the first eight) and fetches (how
--    many took as long as each bucket says); heard, usual, recent, moved (how fast answers come, see the samples); seconds (how
--    many requests it got in each of the last ones), newest (of them, see the report)}
-- Results, fetches and seconds are texts of counters of two bytes, the newest slice or second first: unpacking a list takes long.
--
-- Windows are written once, at the end of a call, by windows.save().
local windows = {}

function state.windows() return {} end
function state.changed_windows() return {} end

local TURN_US = 300000000
local KEPT_MS = 600000
local MOST_HOSTS = 8

-- Has the newest of such counters come `by` bytes further; there are no more than `most` bytes.
function windows.shifted(counters, by, most)
  by = math.min(by, most)
  return ('\0'):rep(by) .. counters:sub(1, most - by)
end

-- Adds to the counter at a place, the first of which is 0; returns them, and what it is now.
function windows.count_in(counters, place, many)
  local at = 2 * place
  if #counters < at + 2 then counters = counters .. ('\0'):rep(at + 2 - #counters) end
  local high, low = counters:byte(at + 1, at + 2)
  many = math.min(high * 256 + low + many, 65535)
  return counters:sub(1, at) .. string.char(math.floor(many / 256), many % 256) .. counters:sub(at + 3), many
end

function windows.note(ctx, source, packed)
  local turn = math.floor(ctx.now / TURN_US)
  local window = packed and cmsgpack.unpack(packed)
    or {results = '', slice = 0, lasts = 0, hosts = {}, fetches = '', turn = turn, heard = 0, usual = 0, recent = 0, moved = 0,
      newest = 0, seconds = ''}
  if window.turn < turn then window.turn, window.hosts, window.fetches = turn, {}, '' end
  ctx.windows[source] = window
  return window
end

function windows.of(ctx, source)
  return ctx.windows[source] or windows.note(ctx, source, redis.call('GET', ctx.K.window_of .. source))
end

-- Reads those of several sources at once.
function windows.look_up(ctx, sources)
  local keys = {}
  for index, source in ipairs(sources) do keys[index] = ctx.K.window_of .. source end
  for index, packed in ipairs(#keys > 0 and redis.call('MGET', unpack(keys)) or {}) do windows.note(ctx, sources[index], packed) end
end

function windows.change(ctx, source)
  ctx.changed_windows[source] = true
  return windows.of(ctx, source)
end

-- Forgets all but how many requests a source got in the last seconds.
function windows.clear(ctx, source)
  local before = windows.change(ctx, source)
  local window = windows.note(ctx, source, false)
  window.newest, window.seconds = before.newest, before.seconds
  ctx.tallies[source] = nil
end

function windows.save(ctx)
  for source in pairs(ctx.changed_windows) do
    local window, tally = ctx.windows[source], ctx.tallies[source]
    if tally then
      if tally.fine > 0 then window.results = windows.count_in(window.results, 0, tally.fine) end
      if tally.failed > 0 then window.results = windows.count_in(window.results, 1, tally.failed) end
      for bucket, many in pairs(tally.fetches) do window.fetches = windows.count_in(window.fetches, bucket, many) end
    end
    redis.call('SET', ctx.K.window_of .. source, cmsgpack.pack(window), 'PX', text(math.max(window.lasts, KEPT_MS)))
  end
  ctx.changed_windows, ctx.tallies = nil, nil
end

-- A result came from this host.
function windows.note_host(ctx, source, host, fine)
  local hosts = windows.change(ctx, source).hosts
  if not hosts[host] then
    local count = 0
    for _ in pairs(hosts) do count = count + 1 end
    if count >= MOST_HOSTS then host = '' end
    hosts[host] = hosts[host] or {0, 0}
  end
  local results, place = hosts[host], fine and 1 or 2
  results[place] = results[place] + 1
end

-- The only one of several hosts that has errors; nil where there is no such.
function windows.failing_host(hosts)
  local failing, others_answer
  for host, results in pairs(hosts) do
    if results[2] > 0 then
      if failing or host == '' then return nil end
      failing = host
    elseif results[1] > 0 then
      others_answer = true
    end
  end
  return others_answer and failing or nil
end
