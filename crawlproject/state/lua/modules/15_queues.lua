-- Queues: the stored requests of each source, by priority, those that wait for their time, and those beyond its window.
--
-- A: high_water (most requests outstanding); pace (see the pace).
--
-- A stored request ("entry") is opaque but for its first three bytes: version, deliveries, priority.
--
-- A source's queues hold what it can be sent in ten minutes, its window: a request is queued while fewer of its priority and
-- higher ones are. What is beyond waits in the source's overflow, in order, a list for each priority; with a store most of it in
-- extents, many requests each, for which a reference in a list stands: those come before what is in the list of requests.
-- What waits there is in the seen filter, and not outstanding. Whatever takes from a queue fills it up from there when half of the
-- window is used up. So a source with an overflow has something queued or delayed, or a worker fetches an extent of it.
local queues = {}

-- source -> the keys of its queues
function state.queues() return {} end
-- Source -> up to which rank requests may be queued, as taking or looking has left it (0: none); the highest that this call has
-- queued at; false: none of its requests waits for its time
function state.has() return {queued = {}, added = {}, delayed = {}} end
-- What is counted of the frontier, as this call has found and left it: requests `outstanding`, those in the `overflow`, those of them
-- that are `spilled`; the number of the last `lease`
function state.counters(ctx)
  local names, counters = {'outstanding', 'overflow', 'spilled', 'lease'}, {}
  for index, value in ipairs(redis.call('HMGET', ctx.K.counters, unpack(names))) do counters[names[index]] = tonumber(value) or 0 end
  return counters
end
-- Source -> by rank, how many more requests its queues take, and whether some wait in its overflow (`waits`), where that was asked for
function state.rooms() return {} end
-- What is to be stored, by list; how many requests of it in queues, and in overflows, of all sources and of each
function state.added() return {batches = {}, queued = 0, waiting = 0, waiting_of = {}} end

local LEAST_EXTENT, MOST_EXTENT = 64, 2048 -- requests
local LEAST_WINDOW, MOST_WINDOW = 8, 4096 -- requests
local MOST_PROMOTED = 250 -- requests, at a call

function queues.count(ctx, name, number)
  if number == 0 then return end
  local known = rawget(ctx, 'counters')
  if known then known[name] = known[name] + number end
  redis.call('HINCRBY', ctx.K.counters, name, text(number))
end

-- How many requests wait beyond windows in Redis.
function queues.in_tails(ctx) return ctx.counters.overflow - ctx.counters.spilled end

function queues.deliveries_of(entry) return entry:byte(2) or 0 end

function queues.keys_by_priority(first, source)
  return {first .. '0:' .. source, first .. '1:' .. source, first .. '2:' .. source, first .. '3:' .. source, first .. '4:' .. source}
end

-- The queues of a source, the one of the lowest priority first.
function queues.keys_of(ctx, source)
  if not ctx.queues[source] then ctx.queues[source] = queues.keys_by_priority(ctx.K.queue_of, source) end
  return ctx.queues[source]
end

-- The lists of its overflow, in the same order.
function queues.overflow_lists_of(ctx, source) return queues.keys_by_priority(ctx.K.overflow_of, source) end

-- The lists of its extents, in the same order.
function queues.extents_of(ctx, source) return queues.keys_by_priority(ctx.K.extents_of, source) end

-- How many requests an extent holds. A large source has ten thousands: the pattern goes to the last colon at once.
function queues.requests_in(reference) return tonumber(reference:match('^.*:(%d+)$')) end

-- The place of a request's priority among these.
function queues.rank_of(entry) return math.min(entry:byte(3) or 0, 4) + 1 end

-- How many requests of a source wait, delayed or queued, at this rank or a higher one (nil: at any). Most have them at one rank.
function queues.backlog_of(ctx, source, least)
  local keys, delayed, count = queues.keys_of(ctx, source), ctx.K.delayed_of .. source, 0
  least = least or 1
  for rank = least, #keys do
    count = count + redis.call('LLEN', keys[rank])
    if rank == least and redis.call('EXISTS', delayed, unpack(keys, least + 1)) == 0 then return count end
  end
  return count + redis.call('ZCARD', delayed)
end

-- Notes that a source has this request queued.
function queues.note_queued(ctx, source, entry)
  ctx.has.added[source] = math.max(ctx.has.added[source] or 0, queues.rank_of(entry))
end

-- Appends requests of one priority to their queue.
function queues.append(ctx, source, entries)
  redis.call('RPUSH', queues.keys_of(ctx, source)[queues.rank_of(entries[1])], unpack(entries))
  queues.note_queued(ctx, source, entries[1])
end

-- Returns a request to the head of its queue.
function queues.put_back(ctx, source, entry)
  redis.call('LPUSH', queues.keys_of(ctx, source)[queues.rank_of(entry)], entry)
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
  if ctx.has.delayed[source] == false then return entries end
  local ready = redis.call('ZRANGEBYSCORE', key, '-inf', text(ctx.now), 'LIMIT', 0, count)
  for index, member in ipairs(ready) do entries[index] = queues.entry_of(member) end
  write_all('ZREM', key, ready)
  return entries
end

-- The next requests of a source, at most `count`: those whose delay is over, then the heads of its queues, from `rank` down, the
-- highest at which it may have any. A queue that had as many as were wanted may be empty now: see look_at_rest().
function queues.take(ctx, source, count, rank)
  local entries, keys = queues.take_delayed(ctx, source, count), queues.keys_of(ctx, source)
  local best = rank
  while rank > 0 and #entries < count do
    -- Most have requests of one class: when these are taken, all others are looked for at once.
    if rank == best - 1 and redis.call('EXISTS', unpack(keys, 1, rank)) == 0 then
      rank = 0
      break
    end
    for _, entry in ipairs(redis.call('LPOP', keys[rank], count - #entries) or {}) do entries[#entries + 1] = entry end
    if #entries < count then rank = rank - 1 end
  end
  ctx.has.queued[source] = rank
  return entries
end

-- How many requests the queues of a source hold: ten minutes of its pace, but no more than a quarter of what is free of the
-- frontier: so halted sources never fill it by themselves.
function queues.window_of(ctx, source)
  local rate, free = rates.of(ctx, source), ctx.A.high_water - ctx.counters.outstanding
  if ctx.A.pace > 0 then rate = math.min(rate, 1000000 / ctx.A.pace) end
  return math.max(LEAST_WINDOW, math.min(MOST_WINDOW, math.floor(600 * rate), math.floor(free / 4)))
end

function queues.has_overflow(ctx, source)
  local keys = queues.overflow_lists_of(ctx, source)
  for _, key in ipairs(queues.extents_of(ctx, source)) do keys[#keys + 1] = key end
  return redis.call('EXISTS', unpack(keys)) > 0
end

-- By rank, how many more requests the queues of a source take.
function queues.rooms_of(ctx, source)
  local rooms = ctx.rooms[source]
  if rooms then return rooms end
  local keys, room = queues.keys_of(ctx, source), queues.window_of(ctx, source)
  rooms = {room - redis.call('LLEN', keys[1]), room, room, room, room, waits = {}}
  if redis.call('EXISTS', ctx.K.delayed_of .. source, unpack(keys, 2)) > 0 then
    for rank = 1, #keys do rooms[rank] = room - queues.backlog_of(ctx, source, rank) end
  end
  ctx.rooms[source] = rooms
  return rooms
end

-- Whether the queues of a source take one more request of a rank: there is room, and none waits in its overflow, or this one comes
-- `first`.
function queues.takes(ctx, source, rank, first)
  local rooms = queues.rooms_of(ctx, source)
  if rooms[rank] <= 0 or first then return rooms[rank] > 0 end
  if rooms.waits[rank] == nil then
    local keys = {queues.overflow_lists_of(ctx, source)[rank], queues.extents_of(ctx, source)[rank]}
    rooms.waits[rank] = ctx.counters.overflow ~= 0 and redis.call('EXISTS', unpack(keys)) > 0
  end
  return not rooms.waits[rank]
end

-- Notes that a request goes to a queue, or to the overflow.
function queues.note_stored(ctx, source, rank, is_queued)
  local rooms = queues.rooms_of(ctx, source)
  if not is_queued then rooms.waits[rank] = true end
  for below = 1, is_queued and rank or 0 do rooms[below] = rooms[below] - 1 end
end

-- Stores a request in the queue of its source (`is_queued`), or its overflow, at the end of the call.
function queues.add(ctx, source, entry, is_queued)
  local rank, added = queues.rank_of(entry), ctx.added
  queues.note_stored(ctx, source, rank, is_queued)
  local list = (is_queued and queues.keys_of or queues.overflow_lists_of)(ctx, source)[rank]
  local batch = added.batches[list]
  if not batch then
    batch = {source = source, is_queued = is_queued, entries = {}}
    added.batches[list] = batch
  end
  batch.entries[#batch.entries + 1] = entry
  if is_queued then
    added.queued = added.queued + 1
  else
    added.waiting, added.waiting_of[source] = added.waiting + 1, (added.waiting_of[source] or 0) + 1
  end
end

at_end('added', function(ctx)
  local added = ctx.added
  for list, batch in pairs(added.batches) do
    ctx.touched[batch.source] = true
    write_all('RPUSH', list, batch.entries)
    if batch.is_queued then
      queues.note_queued(ctx, batch.source, batch.entries[1])
    else
      queues.note_waiting(ctx, batch.source, list)
    end
  end
  queues.count(ctx, 'outstanding', added.queued)
  queues.count(ctx, 'overflow', added.waiting)
end)

-- Has workers with the store look at a source: an extent of it is needed, or can be made.
function queues.need_store(ctx, source) redis.call('ZADD', ctx.K.overflow_due, 'NX', text(ctx.now), source) end

-- Notes that a list of an overflow has grown.
function queues.note_waiting(ctx, source, list)
  if redis.call('LLEN', list) >= LEAST_EXTENT then queues.need_store(ctx, source) end
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

-- Fills the queues of a source from its overflow: of each priority, the highest first, when half of the window is used up.
function queues.promote(ctx, source)
  if not queues.has_overflow(ctx, source) then return end
  local lists, extents, window, taken = queues.overflow_lists_of(ctx, source), queues.extents_of(ctx, source),
    queues.window_of(ctx, source), 0
  for rank = #lists, 1, -1 do
    if redis.call('EXISTS', lists[rank], extents[rank]) > 0 then
      local room = window - queues.backlog_of(ctx, source, rank)
      if room < window / 2 or taken >= MOST_PROMOTED then break end
      if redis.call('EXISTS', extents[rank]) == 1 then -- these come first, and a worker has to fetch them
        queues.need_store(ctx, source)
        break
      end
      local entries = redis.call('LPOP', lists[rank], math.min(room, MOST_PROMOTED - taken))
      taken = taken + #entries
      queues.append(ctx, source, entries)
    end
  end
  queues.count(ctx, 'overflow', -taken)
  queues.count(ctx, 'outstanding', taken)
  if taken > 0 and not queues.has_overflow(ctx, source) then redis.call('ZREM', ctx.K.overflow_due, source) end
  ctx.rooms[source] = nil
end

-- The extent that a source needs next, as its rank and the reference to it; nothing: none.
function queues.needed_extent(ctx, source)
  local window, extents = queues.window_of(ctx, source), queues.extents_of(ctx, source)
  for rank = #extents, 1, -1 do
    local reference = redis.call('LINDEX', extents[rank], 0)
    if reference then return window - queues.backlog_of(ctx, source, rank) >= window / 2 and rank or nil, reference end
  end
end

-- The highest rank that a source has requests queued at; 0: none.
function queues.best_of(ctx, source)
  local keys = queues.keys_of(ctx, source)
  local rank = redis.call('EXISTS', unpack(keys)) > 0 and #keys or 0
  while rank > 0 and redis.call('EXISTS', keys[rank]) == 0 do rank = rank - 1 end
  return rank
end

-- Looks at the queues of a source, whatever is known of them.
function queues.look_anew(ctx, source) ctx.has.queued[source] = queues.best_of(ctx, source) end

-- Finds out whether queues that gave as much as was wanted have more: as a rule all have.
function queues.look_at_rest(ctx, sources)
  local keys, asked = {}, {}
  for source in pairs(sources) do
    local rank = ctx.has.queued[source] or 0
    if rank > 0 then keys[#keys + 1], asked[#asked + 1] = queues.keys_of(ctx, source)[rank], source end
  end
  if #keys == 0 or redis.call('EXISTS', unpack(keys)) == #keys then return end
  for _, source in ipairs(asked) do queues.look_anew(ctx, source) end
end

-- When a source has work: now, at a moment to come, or, with none, nil; and the class of the best that it has. `rank`: the highest
-- that it may have had queued before this call; nil: that is looked for.
function queues.has_work_at(ctx, source, rank)
  rank = math.max(ctx.has.queued[source] or rank or queues.best_of(ctx, source), ctx.has.added[source] or 0)
  if rank > 0 then return ctx.now, rank - 1 end
  local first = ctx.has.delayed[source] ~= false and redis.call('ZRANGE', ctx.K.delayed_of .. source, 0, 0, 'WITHSCORES')
  if not first or not first[1] then return nil end
  return tonumber(first[2]), queues.rank_of(queues.entry_of(first[1])) - 1
end

-- Stores a request whose lease has ended, or that comes from another shard: after `micros`, or to the head of its source's queue. One
-- that was another source's (`is_foreign`) goes there only while its source has room for it, else to its overflow; a `stray` behind what
-- waits. `unique` keeps two equal ones apart.
function queues.arrive(ctx, source, entry, unique, micros, is_foreign, stray)
  local rank, added = queues.rank_of(entry), ctx.added
  rates.register(ctx, source)
  ctx.touched[source] = true
  if micros > 0 then
    queues.delay(ctx, source, entry, unique, micros)
  elseif stray or is_foreign and not queues.takes(ctx, source, rank, true) then
    queues.add(ctx, source, entry, queues.takes(ctx, source, rank))
    return
  else
    queues.put_back(ctx, source, entry)
    if is_foreign then queues.note_stored(ctx, source, rank, true) end
  end
  added.queued = added.queued + 1
end

-- Seeds, and the processing list of each worker: those that it has taken and not yet enqueued.
local seed_list = {}

-- The seeds on a worker's processing list, the one taken first at the head.
function seed_list.in_hand(ctx, worker)
  local seeds, taken = redis.call('LRANGE', ctx.K.processing_of .. worker, 0, -1), {}
  for index = #seeds, 1, -1 do taken[#taken + 1] = seeds[index] end
  return taken
end

-- Returns the seeds on a worker's processing list to where they came from, in order.
function seed_list.give_back(ctx, worker)
  local processing = ctx.K.processing_of .. worker
  local seed = redis.call('LPOP', processing)
  while seed do
    redis.call('RPUSH', ctx.K.seeds, seed)
    seed = redis.call('LPOP', processing)
  end
end

local LONGEST = 1048576 -- bytes

-- Returns the seeds that come next in a list, the first one at the head; they stay where they are. These are `count` at most,
-- and beyond `size` bytes there is no further one. In place of a longer line come a zero byte and its length.
function seed_list.peek(list, count, size)
  users_keys.require('list', list)
  local found = {}
  while #found < count and size > 0 do
    local place = -1 - #found
    local seed = redis.call('LINDEX', list, place)
    if not seed then break end
    size = size - #seed
    if #seed > LONGEST then
      seed = '\0' .. #seed
      redis.call('LSET', list, place, seed)
    end
    found[#found + 1] = seed
  end
  return found
end
