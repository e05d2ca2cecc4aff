-- Queues: the stored requests of each source, by priority, those that wait for their time, and those beyond its share.
--
-- A: high_water (most requests outstanding; a source's share is a part of it); pace (see the pace).
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
local queues = {}

-- source -> the keys of its queues
function state.queues() return {} end
-- Source -> the highest rank that requests were queued at, or false: none is queued; whether it has requests delayed, or in
-- its overflow
function state.has() return {queued = {}, delayed = {}, apart = {}} end

function queues.deliveries_of(entry) return entry:byte(2) or 0 end

function queues.keys_by_priority(first, source)
  local rest = ':' .. source
  return {first .. 0 .. rest, first .. 1 .. rest, first .. 2 .. rest, first .. 3 .. rest, first .. 4 .. rest}
end

-- The queues of a source, the one of the lowest priority first.
function queues.keys_of(ctx, source)
  if not ctx.queues[source] then ctx.queues[source] = queues.keys_by_priority(ctx.K.queue_of, source) end
  return ctx.queues[source]
end

-- The lists of its overflow, in the same order.
function queues.overflow_lists_of(ctx, source) return queues.keys_by_priority(ctx.K.overflow_of, source) end

-- The lists of its extents, of the lowest priorities, in the same order.
function queues.extents_of(ctx, source) return {ctx.K.extents_of .. '0:' .. source, ctx.K.extents_of .. '1:' .. source} end

-- How many requests an extent holds.
function queues.requests_in(reference) return tonumber(reference:match('%d+$')) end

-- The place of a request's priority among these.
function queues.rank_of(entry) return math.min(entry:byte(3) or 0, 4) + 1 end

function queues.key_for(ctx, source, entry) return queues.keys_of(ctx, source)[queues.rank_of(entry)] end

-- How many requests of a source wait, queued or delayed.
function queues.backlog_of(ctx, source)
  local count = redis.call('ZCARD', ctx.K.delayed_of .. source)
  for _, key in ipairs(queues.keys_of(ctx, source)) do count = count + redis.call('LLEN', key) end
  return count
end

-- Notes that a source has this request queued; those taken meanwhile may have been the last ones.
function queues.note_queued(ctx, source, entry)
  ctx.has.queued[source] = math.max(ctx.has.queued[source] or 0, queues.rank_of(entry))
end

-- Appends requests of one priority to their queue.
function queues.append(ctx, source, entries)
  redis.call('RPUSH', queues.key_for(ctx, source, entries[1]), unpack(entries))
  queues.note_queued(ctx, source, entries[1])
end

-- Returns a request to the head of its queue.
function queues.put_back(ctx, source, entry)
  redis.call('LPUSH', queues.key_for(ctx, source, entry), entry)
  queues.note_queued(ctx, source, entry)
end

-- `unique` keeps two equal requests apart in the sorted set.
function queues.delay(ctx, source, entry, unique, micros)
  ctx.has.delayed[source] = nil
  redis.call('ZADD', ctx.K.delayed_of .. source, text(ctx.now + micros), unique .. '\n' .. entry)
end

-- The request that a member of such a set is.
function queues.entry_of(member) return member:sub(member:find('\n', 1, true) + 1) end

-- Looks at several sources at once: as a rule none of them has requests that wait for their time.
function queues.look_up_delayed(ctx, sources)
  if not none_has(ctx.K.delayed_of, sources) then return end
  for _, source in ipairs(sources) do ctx.has.delayed[source] = false end
end

-- The delayed requests of a source whose time has come, at most `count`.
function queues.take_delayed(ctx, source, count)
  local entries, key = {}, ctx.K.delayed_of .. source
  if ctx.has.delayed[source] == nil then ctx.has.delayed[source] = redis.call('EXISTS', key) == 1 end
  if not ctx.has.delayed[source] then return entries end
  local ready = redis.call('ZRANGEBYSCORE', key, '-inf', text(ctx.now), 'LIMIT', 0, count)
  for index, member in ipairs(ready) do entries[index] = queues.entry_of(member) end
  write_all('ZREM', key, ready)
  return entries
end

-- The next requests of a source, at most `count`: those whose delay is over, then the heads of its queues. `class`: the
-- best that it may have queued; nil: any.
function queues.take(ctx, source, count, class)
  ctx.has.queued[source] = nil
  local entries = queues.take_delayed(ctx, source, count)
  local keys, best = queues.keys_of(ctx, source), class and class + 1 or 5
  for rank = best, 1, -1 do
    if #entries == count then return entries end
    -- Most have requests of one class: when these are taken, all others are looked for at once.
    if rank == best - 1 and rank > 1 and redis.call('EXISTS', unpack(keys, 1, rank)) == 0 then break end
    for _, entry in ipairs(redis.call('LPOP', keys[rank], count - #entries) or {}) do entries[#entries + 1] = entry end
  end
  if #entries < count then ctx.has.queued[source] = false end
  return entries
end

-- By how many the requests `held` of one source, queued and delayed, are beyond its share of a frontier that has
-- `outstanding` in all; less than 0: it has room for so many. The share is a third of what is left free: one source
-- alone gets a quarter of the frontier, the next one a quarter of the rest. A few it may always have, so that it is
-- crawled at its rate.
function queues.excess_of(ctx, held, outstanding)
  local least = math.max(math.min(math.floor(ctx.A.high_water / 32), 100), 1)
  return math.min(math.ceil((3 * held + outstanding - ctx.A.high_water) / 4), held - least)
end

-- How many requests of the lowest priorities the queues of a source are filled up to: ten minutes of its pace.
function queues.window_size(ctx, source)
  local rate = rates.of(ctx, source)
  return math.max(8, math.min(4096, math.floor(600 * math.min(rate, ctx.A.pace > 0 and 1000000 / ctx.A.pace or rate))))
end

function queues.has_overflow(ctx, source)
  local keys, extents = queues.overflow_lists_of(ctx, source), queues.extents_of(ctx, source)
  keys[#keys + 1], keys[#keys + 2] = extents[1], extents[2]
  ctx.has.apart[source] = redis.call('EXISTS', unpack(keys)) > 0
  return ctx.has.apart[source]
end

-- Whether any request of a source waits, wherever.
function queues.has_any(ctx, source)
  return redis.call('EXISTS', ctx.K.delayed_of .. source, unpack(queues.keys_of(ctx, source))) > 0
    or queues.has_overflow(ctx, source)
end

-- Whether requests of a source are in its overflow that come before a further one of that rank.
function queues.waits_apart(ctx, source, rank)
  if redis.call('LLEN', queues.overflow_lists_of(ctx, source)[rank]) > 0 then return true end
  return rank <= 2 and redis.call('LLEN', queues.extents_of(ctx, source)[rank]) > 0
end

-- How many requests of a source are in its extents.
function queues.spilled_of(ctx, source)
  local count = 0
  for _, key in ipairs(queues.extents_of(ctx, source)) do
    for _, reference in ipairs(redis.call('LRANGE', key, 0, -1)) do count = count + queues.requests_in(reference) end
  end
  return count
end

-- How many requests of a source are in its overflow, but for these.
function queues.tail_of(ctx, source)
  local count = 0
  for _, key in ipairs(queues.overflow_lists_of(ctx, source)) do count = count + redis.call('LLEN', key) end
  return count
end

function queues.overflow_of(ctx, source) return queues.tail_of(ctx, source) + queues.spilled_of(ctx, source) end

-- Fills the queues of a source from its overflow, as far as its share of a frontier with `outstanding` requests goes,
-- and by `most` requests if that is given; of each priority in order, the highest first. The lowest priorities wait until
-- half of the source's window is used up. Returns by how many requests the frontier grows.
function queues.promote(ctx, source, outstanding, most)
  if not queues.has_overflow(ctx, source) then return 0 end
  local held, window = queues.backlog_of(ctx, source), queues.window_size(ctx, source)
  local room = math.min(-queues.excess_of(ctx, held, outstanding), most or 250, 250) -- at a call
  local taken, lists = 0, queues.overflow_lists_of(ctx, source)
  for index = #lists, 1, -1 do
    if index == 2 then room = math.min(room, 2 * held <= window and window - held or 0) end
    local extents = index <= 2 and taken < room and redis.call('LLEN', queues.extents_of(ctx, source)[index]) or 0
    if extents > 0 then -- these come first, and a worker has to fetch them
      redis.call('SADD', ctx.K.refill_ready, source)
      break
    end
    local entries = taken < room and redis.call('LPOP', lists[index], room - taken)
    if entries then
      taken = taken + #entries
      queues.append(ctx, source, entries)
    end
  end
  if taken > 0 then
    redis.call('DECRBY', ctx.K.overflow, taken)
    redis.call('INCRBY', ctx.K.outstanding, taken)
  end
  return taken
end

-- Moves `count` requests of a source, the last ones of the lowest priorities, from its queues to the head of its
-- overflow. Returns by how many the frontier shrinks.
function queues.demote(ctx, source, count)
  local taken, lists = 0, queues.overflow_lists_of(ctx, source)
  for index, queue in ipairs(queues.keys_of(ctx, source)) do
    local entries = taken < count and redis.call('RPOP', queue, count - taken)
    if entries then
      taken = taken + #entries
      redis.call('LPUSH', lists[index], unpack(entries))
    end
  end
  ctx.has.queued[source] = nil
  redis.call('DECRBY', ctx.K.outstanding, taken)
  redis.call('INCRBY', ctx.K.overflow, taken)
  return taken
end

-- Keeps a source to its share when `count` requests have been added to its queues: moves as many of them, at most, to its
-- overflow; where it has room, fills its queues up from there. Returns by how many requests the frontier grows.
function queues.keep_to_share(ctx, source, count, outstanding)
  local excess = queues.excess_of(ctx, queues.backlog_of(ctx, source), outstanding)
  if excess > 0 then return -queues.demote(ctx, source, math.min(excess, count)) end
  return queues.promote(ctx, source, outstanding)
end

-- When a source has work: now, at a moment to come, or, with none, nil; and the class of the best that it has. `class`: the
-- best that it may have had before this call, none: it had no work, as far as is known. One whose work is all in its
-- overflow, in extents, is looked at every two seconds, so that it does not depend on who has been told to fetch them.
function queues.has_work_at(ctx, source, class)
  local added = ctx.has.queued[source]
  if added ~= false then
    local best, keys = math.max(class and class + 1 or 0, added or 0), queues.keys_of(ctx, source)
    if best == 0 and redis.call('EXISTS', unpack(keys)) > 0 then best = #keys end
    for rank = best, 1, -1 do
      if rank == added or redis.call('EXISTS', keys[rank]) > 0 then return ctx.now, rank - 1 end
      -- Most have requests of one class: when these are done, all others are looked for at once.
      if rank == best and best > 2 and not added and redis.call('EXISTS', unpack(keys, 1, best - 1)) == 0 then break end
    end
  end
  local first = ctx.has.delayed[source] ~= false and redis.call('ZRANGE', ctx.K.delayed_of .. source, 0, 0, 'WITHSCORES')
  local at = first and tonumber(first[2])
  local best = at and queues.rank_of(queues.entry_of(first[1])) - 1
  if ctx.has.apart[source] == nil then queues.has_overflow(ctx, source) end
  if not ctx.has.apart[source] then return at, best end
  return math.min(at or math.huge, ctx.now + 2000000), math.max(best or 0, 1)
end

-- Takes in a request whose lease has ended, or that comes from another shard.
-- Stores a request: after `micros`, to the head of its source's queue, or, a `stray`, behind what waits there. Returns whether it
-- is outstanding by that. `unique` keeps two equal ones apart.
function queues.arrive(ctx, source, entry, unique, micros, stray)
  rates.register(ctx, source)
  local rank = queues.rank_of(entry)
  if micros > 0 then
    queues.delay(ctx, source, entry, unique, micros)
  elseif not stray then
    queues.put_back(ctx, source, entry)
  elseif not queues.waits_apart(ctx, source, rank) then
    queues.append(ctx, source, {entry})
  else
    redis.call('RPUSH', queues.overflow_lists_of(ctx, source)[rank], entry)
    redis.call('INCR', ctx.K.overflow)
    return false
  end
  return true
end
