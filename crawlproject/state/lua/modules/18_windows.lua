-- Windows: what is known of the last minutes of a source. Each is one map (msgpack):
--    {buckets (of its circuit's window: number -> {fine, errors}, see the samples); hosts (that its results came from -> {fine,
--    errors}; '': all but the first eight); fetches (bucket of how long a fetch took -> how many); turn (when hosts and fetches
--    were last halved); heard, usual, recent, moved (how fast answers come, see the samples); newest, seconds (how many requests
--    it got in each of the last seconds, see the report);
--    lasts (ms for which its circuit needs it)}
--
-- Windows are written once, at the end of a call, by windows.save().
local windows = {}

function state.windows() return {} end

local TURN_US = 300000000 -- in which hosts and fetches lose half of their numbers: they are of the last few minutes
local KEPT_MS = 600000
local MOST_HOSTS = 8

local function halved(number, share) return math.floor(number * share) end

function windows.note(ctx, source, packed)
  local turn = math.floor(ctx.now / TURN_US)
  local window = packed and cmsgpack.unpack(packed)
    or {buckets = {}, hosts = {}, fetches = {}, turn = turn, heard = 0, usual = 0, recent = 0, moved = 0, newest = 0, seconds = '',
      lasts = 0}
  if window.turn < turn then
    local share = 2 ^ (window.turn - turn)
    window.turn = turn
    for bucket, count in pairs(window.fetches) do window.fetches[bucket] = halved(count, share) end
    for host, results in pairs(window.hosts) do
      local fine, errors = halved(results[1], share), halved(results[2], share)
      window.hosts[host] = fine + errors > 0 and {fine, errors} or nil
    end
  end
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
  local window = windows.of(ctx, source)
  window.is_changed = true
  return window
end

-- Forgets all but how many requests a source got in the last seconds.
function windows.clear(ctx, source)
  local before = windows.of(ctx, source)
  local window = windows.note(ctx, source, false)
  window.newest, window.seconds, window.is_changed = before.newest, before.seconds, true
end

function windows.save(ctx)
  for source, window in pairs(ctx.windows) do
    if window.is_changed then
      window.is_changed = nil
      redis.call('SET', ctx.K.window_of .. source, cmsgpack.pack(window), 'PX', text(math.max(window.lasts, KEPT_MS)))
    end
  end
end

-- A result came from this host.
function windows.note_host(ctx, source, host, fine)
  local hosts, count = windows.change(ctx, source).hosts, 0
  for name in pairs(hosts) do
    if name ~= '' then count = count + 1 end
  end
  if not hosts[host] and count >= MOST_HOSTS then host = '' end
  hosts[host] = hosts[host] or {0, 0}
  local place = fine and 1 or 2
  hosts[host][place] = hosts[host][place] + 1
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
