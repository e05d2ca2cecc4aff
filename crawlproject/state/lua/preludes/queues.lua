-- Queues: the stored requests of each source, by priority, and those that wait for their time.
-- needs: clock, dead_letters
--
-- A stored request ("entry") is opaque but for its first three bytes: version, deliveries, priority.

local queues = {} -- source -> the keys of its queues
local has_queued, has_delayed = {}, {} -- source -> whether it has requests queued, or delayed, where that is known

local function deliveries_of(entry) return entry:byte(2) or 0 end

-- The queues of a source, the one of the lowest priority first.
local function queues_of(source)
  local keys = queues[source]
  if not keys then
    local first, rest = K.queue_of, ':' .. source
    keys = {first .. 0 .. rest, first .. 1 .. rest, first .. 2 .. rest, first .. 3 .. rest, first .. 4 .. rest}
    queues[source] = keys
  end
  return keys
end

local function key_for(source, entry) return queues_of(source)[math.min(entry:byte(3) or 0, 4) + 1] end

-- How many requests of a source wait, queued or delayed.
local function backlog_of(source)
  local count = attempt('ZCARD', K.delayed_of .. source) or 0
  for _, key in ipairs(queues_of(source)) do count = count + (attempt('LLEN', key) or 0) end
  return count
end

-- Stores requests under a key of their source; returns false when they are dead letters instead, and not outstanding.
local function store(source, entries, command, key, ...)
  if attempt(command, key, ...) then return true end
  for _, entry in ipairs(entries) do add_dead_letter('entry', entry, source, wrong(key), deliveries_of(entry)) end
  return false
end

-- Appends requests of one priority to their queue.
local function append(source, entries)
  local stored = store(source, entries, 'RPUSH', key_for(source, entries[1]), unpack(entries))
  if stored then has_queued[source] = true end
  return stored
end

-- Returns a request to the head of its queue.
local function put_back(source, entry)
  local stored = store(source, {entry}, 'LPUSH', key_for(source, entry), entry)
  if stored then has_queued[source] = true end
  return stored
end

-- `unique` keeps two equal requests apart in the sorted set.
local function delay(source, entry, unique, micros)
  has_delayed[source] = nil
  return store(source, {entry}, 'ZADD', K.delayed_of .. source, text(now + micros), unique .. '\n' .. entry)
end

-- The next requests of a source, at most `count`: those whose delay is over, then the heads of its queues.
local function take(source, count)
  local entries, delayed, keys = {}, K.delayed_of .. source, queues_of(source)
  if redis.call('EXISTS', delayed, unpack(keys, 2)) > 0 then
    local ready = attempt('ZRANGEBYSCORE', delayed, '-inf', text(now), 'LIMIT', 0, count)
    if ready and #ready > 0 then
      redis.call('ZREM', delayed, unpack(ready))
      for _, member in ipairs(ready) do
        local at = member:find('\n', 1, true)
        if at then
          entries[#entries + 1] = member:sub(at + 1)
        else
          add_dead_letter('entry', member, source, 'delayed request not written by crawlproject', 0)
        end
      end
    end
    for index = #keys, 2, -1 do
      if #entries < count then
        for _, entry in ipairs(attempt('LPOP', keys[index], count - #entries) or {}) do entries[#entries + 1] = entry end
      end
    end
  else
    has_delayed[source] = false
  end
  if #entries < count then
    for _, entry in ipairs(attempt('LPOP', keys[1], count - #entries) or {}) do entries[#entries + 1] = entry end
    if #entries < count then has_queued[source] = false end
  end
  return entries
end

-- When a source has work: now, at a moment to come, or, with none, nil.
local function has_work_at(source)
  local queued = has_queued[source]
  if queued == nil then queued = redis.call('EXISTS', unpack(queues_of(source))) > 0 end
  if queued then return now end
  if has_delayed[source] == false then return nil end
  local first = attempt('ZRANGE', K.delayed_of .. source, 0, 0, 'WITHSCORES')
  return first and tonumber(first[2] or '')
end
