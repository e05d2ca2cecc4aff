-- Queues: the stored requests of each source, by priority, those that wait for their time, and those beyond its share.
-- needs: clock, dead_letters, rates
--
-- A: high_water (most requests outstanding; a source's share is a part of it); pace (see preludes/pace.lua).
--
-- A stored request ("entry") is opaque but for its first three bytes: version, deliveries, priority.
--
-- A source at its share of the frontier has its further seeds in its overflow, one list for each priority. They are in
-- the seen filter, and not outstanding. Whatever takes from a queue fills it up from there, so that a source with an
-- overflow is never without a queue, and none needs to be looked for. Of two requests of one source the one of the
-- higher priority is never in the overflow while the other is in a queue, unless that came back from a worker.
--
-- Links found on pages have the priorities 0 and 1, and a page has hundreds: of these a source's queues are filled up to
-- its window, what it can be sent in ten minutes, and its overflow is their tail. With a store the heads of tails go there,
-- many requests at a time: an extent, which a reference in a list stands for. It comes before what is in the tail. Below, the
-- ranks of these priorities are 1 and 2.

local queues = {} -- source -> the keys of its queues
-- Source -> the highest rank that requests were queued at, or false: none is queued; whether it has requests delayed, or in
-- its overflow
local has = {queued = {}, delayed = {}, apart = {}}

local function deliveries_of(entry) return entry:byte(2) or 0 end

local function keys_by_priority(first, source)
  local rest = ':' .. source
  return {first .. 0 .. rest, first .. 1 .. rest, first .. 2 .. rest, first .. 3 .. rest, first .. 4 .. rest}
end

-- The queues of a source, the one of the lowest priority first.
local function queues_of(source)
  local keys = queues[source]
  if not keys then
    keys = keys_by_priority(K.queue_of, source)
    queues[source] = keys
  end
  return keys
end

-- The lists of its overflow, in the same order.
local function overflow_lists_of(source) return keys_by_priority(K.overflow_of, source) end

-- The lists of its extents, of the lowest priorities, in the same order.
local function extents_of(source) return {K.extents_of .. '0:' .. source, K.extents_of .. '1:' .. source} end

-- How many requests an extent holds; 0 for what was not written by crawlproject.
local function requests_in(reference)
  return reference:find('^[%w_-]+/%d+%-%x+:%d+:%d+:%x+:%d+$') and number(reference:match('%d+$'), 0) or 0
end

-- The place of a request's priority among these.
local function rank_of(entry) return math.min(entry:byte(3) or 0, 4) + 1 end

local function key_for(source, entry) return queues_of(source)[rank_of(entry)] end

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

-- Notes that a source has this request queued; those taken meanwhile may have been the last ones.
local function note_queued(source, entry)
  has.queued[source] = math.max(has.queued[source] or 0, rank_of(entry))
end

-- Appends requests of one priority to their queue.
local function append(source, entries)
  local stored = store(source, entries, 'RPUSH', key_for(source, entries[1]), unpack(entries))
  if stored then note_queued(source, entries[1]) end
  return stored
end

-- Returns a request to the head of its queue.
local function put_back(source, entry)
  local stored = store(source, {entry}, 'LPUSH', key_for(source, entry), entry)
  if stored then note_queued(source, entry) end
  return stored
end

-- `unique` keeps two equal requests apart in the sorted set.
local function delay(source, entry, unique, micros)
  has.delayed[source] = nil
  return store(source, {entry}, 'ZADD', K.delayed_of .. source, text(now + micros), unique .. '\n' .. entry)
end

-- Looks at several sources at once: as a rule none of them has requests that wait for their time.
local function look_up_delayed(sources)
  if not none_has(K.delayed_of, sources) then return end
  for _, source in ipairs(sources) do has.delayed[source] = false end
end

local function has_delayed(source)
  if has.delayed[source] == nil then has.delayed[source] = redis.call('EXISTS', K.delayed_of .. source) == 1 end
  return has.delayed[source]
end

-- The delayed requests of a source whose time has come, at most `count`.
local function take_delayed(source, count)
  local entries, key = {}, K.delayed_of .. source
  local ready = attempt('ZRANGEBYSCORE', key, '-inf', text(now), 'LIMIT', 0, count)
  if not ready or #ready == 0 then return entries end
  redis.call('ZREM', key, unpack(ready))
  for _, member in ipairs(ready) do
    local at = member:find('\n', 1, true)
    if at then
      entries[#entries + 1] = member:sub(at + 1)
    else
      add_dead_letter('entry', member, source, 'delayed request not written by crawlproject', 0)
    end
  end
  return entries
end

-- The next requests of a source, at most `count`: those whose delay is over, then the heads of its queues. `class`: the
-- best that it may have queued; nil: any.
local function take(source, count, class)
  has.queued[source] = nil
  local entries = has_delayed(source) and take_delayed(source, count) or {}
  local keys, best = queues_of(source), class and class + 1 or 5
  for rank = best, 1, -1 do
    if #entries == count then return entries end
    -- Most have requests of one class: when these are taken, all others are looked for at once.
    if rank == best - 1 and rank > 1 and redis.call('EXISTS', unpack(keys, 1, rank)) == 0 then break end
    for _, entry in ipairs(attempt('LPOP', keys[rank], count - #entries) or {}) do entries[#entries + 1] = entry end
  end
  if #entries < count then has.queued[source] = false end
  return entries
end

-- By how many the requests `held` of one source, queued and delayed, are beyond its share of a frontier that has
-- `outstanding` in all; less than 0: it has room for so many. The share is a third of what is left free: one source
-- alone gets a quarter of the frontier, the next one a quarter of the rest. A few it may always have, so that it is
-- crawled at its rate.
local function excess_of(held, outstanding)
  local least = math.max(math.min(math.floor(A.high_water / 32), 100), 1)
  return math.min(math.ceil((3 * held + outstanding - A.high_water) / 4), held - least)
end

-- How many requests of the lowest priorities the queues of a source are filled up to: ten minutes of its pace.
local function window_size(source)
  local rate = rate_of(source)
  return math.max(8, math.min(4096, math.floor(600 * math.min(rate, A.pace > 0 and 1000000 / A.pace or rate))))
end

local function has_overflow(source)
  local keys, extents = overflow_lists_of(source), extents_of(source)
  keys[#keys + 1], keys[#keys + 2] = extents[1], extents[2]
  has.apart[source] = redis.call('EXISTS', unpack(keys)) > 0
  return has.apart[source]
end

-- Whether requests of a source are in its overflow that come before a further one of that rank.
local function waits_apart(source, rank)
  if (attempt('LLEN', overflow_lists_of(source)[rank]) or 0) > 0 then return true end
  return rank <= 2 and (attempt('LLEN', extents_of(source)[rank]) or 0) > 0
end

-- How many requests of a source are in its extents.
local function spilled_of(source)
  local count = 0
  for _, key in ipairs(extents_of(source)) do
    for _, reference in ipairs(attempt('LRANGE', key, 0, -1) or {}) do count = count + requests_in(reference) end
  end
  return count
end

-- How many requests of a source are in its overflow, but for these.
local function tail_of(source)
  local count = 0
  for _, key in ipairs(overflow_lists_of(source)) do count = count + (attempt('LLEN', key) or 0) end
  return count
end

local function overflow_of(source) return tail_of(source) + spilled_of(source) end

-- Fills the queues of a source from its overflow, as far as its share of a frontier with `outstanding` requests goes,
-- and by `most` requests if that is given; of each priority in order, the highest first. The lowest priorities wait until
-- half of the source's window is used up. Returns by how many requests the frontier grows.
local function promote(source, outstanding, most)
  if not has_overflow(source) then return 0 end
  local held, window = backlog_of(source), window_size(source)
  local room = math.min(-excess_of(held, outstanding), most or 250, 250) -- at a call
  local taken, stored, lists = 0, 0, overflow_lists_of(source)
  for index = #lists, 1, -1 do
    if index == 2 then room = math.min(room, 2 * held <= window and window - held or 0) end
    local extents = index <= 2 and taken < room and attempt('LLEN', extents_of(source)[index]) or 0
    if extents > 0 then -- these come first, and a worker has to fetch them
      attempt('SADD', K.refill_ready, source)
      break
    end
    local entries = taken < room and attempt('LPOP', lists[index], room - taken)
    if entries then
      taken = taken + #entries
      if append(source, entries) then stored = stored + #entries end
    end
  end
  if taken > 0 then
    redis.call('DECRBY', K.overflow, taken)
    redis.call('INCRBY', K.outstanding, stored)
  end
  return stored
end

-- Moves `count` requests of a source, the last ones of the lowest priorities, from its queues to the head of its
-- overflow. Returns by how many the frontier shrinks.
local function demote(source, count)
  local taken, stored, lists = 0, 0, overflow_lists_of(source)
  for index, queue in ipairs(queues_of(source)) do
    local entries = taken < count and attempt('RPOP', queue, count - taken)
    if entries then
      taken = taken + #entries
      if store(source, entries, 'LPUSH', lists[index], unpack(entries)) then stored = stored + #entries end
    end
  end
  has.queued[source] = nil
  redis.call('DECRBY', K.outstanding, taken)
  redis.call('INCRBY', K.overflow, stored)
  return taken
end

-- Keeps a source to its share when `count` requests have been added to its queues: moves as many of them, at most, to its
-- overflow; where it has room, fills its queues up from there. Returns by how many requests the frontier grows.
local function keep_to_share(source, count, outstanding)
  local excess = excess_of(backlog_of(source), outstanding)
  if excess > 0 then return -demote(source, math.min(excess, count)) end
  return promote(source, outstanding)
end

-- When a source has work: now, at a moment to come, or, with none, nil; and the class of the best that it has. `class`: the
-- best that it may have had before this script, none: it had no work, as far as is known. One whose work is all in its
-- overflow, in extents, is looked at every two seconds, so that it does not depend on who has been told to fetch them.
local function has_work_at(source, class)
  local added = has.queued[source]
  if added ~= false then
    local best, keys = math.max(class and class + 1 or 0, added or 0), queues_of(source)
    if best == 0 and redis.call('EXISTS', unpack(keys)) > 0 then best = #keys end
    for rank = best, 1, -1 do
      if rank == added or redis.call('EXISTS', keys[rank]) > 0 then return now, rank - 1 end
      -- Most have requests of one class: when these are done, all others are looked for at once.
      if rank == best and best > 2 and not added and redis.call('EXISTS', unpack(keys, 1, best - 1)) == 0 then break end
    end
  end
  local first = has.delayed[source] ~= false and attempt('ZRANGE', K.delayed_of .. source, 0, 0, 'WITHSCORES')
  local at = first and tonumber(first[2] or '')
  local best = at and rank_of(first[1]:match('\n(.*)$') or '') - 1
  if has.apart[source] == nil then has_overflow(source) end
  if not has.apart[source] then return at, best end
  return math.min(at or math.huge, now + 2000000), math.max(best or 0, 1)
end
