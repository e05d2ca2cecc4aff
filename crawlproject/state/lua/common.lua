-- First prelude of every script: types, the clock, the stored request, the queues.
-- `K` (key names, from state/keys.py) and `A` (the arguments, unpacked) are defined before it.
--
-- A stored request ("entry") is opaque but for its first three bytes: version, deliveries, priority.
-- Times are microseconds of the one clock that decides anything, kept below.
--
-- Scripts do not roll back. Redis denies the first write of a script, when it denies any (out of memory, replica),
-- and none after it: a script either raises before anything has happened, or runs to its end. What could fail for
-- its type is looked at before (the keys that all sources share), or is attempted, so that a key of one source that
-- holds what we did not write keeps that source alone from its due, and its requests become dead letters.

local function text(number) return string.format('%.0f', number) end

-- A number that we may have written, or nil.
local function number(value, low)
  local found = tonumber(value or '')
  if found and found == found and found >= (low or -9e15) and found <= 9e15 then return found end
  return nil
end

-- Whether Redis denies what needs memory; asked before the first write.
local function out_of_memory()
  local reply = redis.pcall('SETRANGE', K.pulse, 0, '') -- changes nothing
  return type(reply) == 'table' and reply.err ~= nil and reply.err:find('OOM', 1, true) ~= nil
end

-- Types

local function wrong(key)
  return 'WRONGTYPE ' .. key .. ' is a ' .. redis.call('TYPE', key).ok .. ' or holds what is none of ours: remove or rename it'
end

local function has_type(key, expected)
  local found = redis.call('TYPE', key).ok
  return found == 'none' or found == expected, found
end

local function require_type(key, expected)
  local right, found = has_type(key, expected)
  if not right then
    error('WRONGTYPE ' .. key .. ' is a ' .. found .. ', not a ' .. expected .. ': remove or rename it', 0)
  end
end

-- An operator's slip (`set` for `sadd`) shall stop a script before it has written anything.
for kind, keys in pairs({
  set = {K.halted, K.temp_halted, K.troubled, K.sources},
  zset = {K.slots, K.due_fast, K.due_mid, K.due_slow, K.workers, K.active},
  hash = {K.rates, K.limits, K.hosts, K.options, K.totals, K.clock, K.dead_sources, K.latencies, K.reading},
  string = {K.pulse, K.leader, K.paused, K.outstanding, K.lease_sequence, K.fence, K.suspect_turn},
  list = {K.suspects},
  stream = {K.dead, K.image_events, K.link_rot_events, K.halted_events, K.resumed_events},
}) do
  for _, key in ipairs(keys) do require_type(key, kind) end
end
local COUNTERS = {K.outstanding, K.lease_sequence, K.fence}
for index, value in ipairs(redis.call('MGET', unpack(COUNTERS))) do
  if value and not (value:match('^%-?%d+$') and #value <= 16) then
    error('WRONGTYPE ' .. COUNTERS[index] .. ' holds no whole number: remove it', 0)
  end
end

-- Has the leader log what keeps one source from its due.
local function complain(sentence) redis.pcall('SET', K.complaint, sentence, 'PX', 10000) end

-- Runs a command on a key of one source; nil when the key holds something of another kind. Other errors are raised.
local function attempt(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if not (reply.err:find('WRONGTYPE', 1, true) or reply.err:find('not an integer', 1, true)
      or reply.err:find('overflow', 1, true)) then
    error(reply.err, 0)
  end
  complain(wrong(key))
  return nil
end

-- The clock: Redis' own, which never goes back here. It does there, when somebody sets it, or after a fail-over to a
-- host with another. `seen` is the latest moment of the crawl's time that a leader or a lease has seen. Where the
-- server is behind, time stands still until one of them notes by how much the crawl is `ahead`: slots, delays, holds
-- and heartbeats keep their meaning, and no source gets more than its rate. A clock that is set forward
-- lets time pass quickly. As nobody can tell that from a time without a leader, after either nothing goes out until
-- `resume`: what had its slot before goes first. heartbeat.lua sees to it that no worker loses its leases for it.

local CENTURY = 3e15
local LONGEST_SILENCE = 3000000 -- leaders look each second
local MOST_SLOTS_AHEAD = 500000 -- slots are given out 250 ms ahead, and may be used 250 ms late

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local server_time = clock()
local kept = redis.call('HMGET', K.clock, 'seen', 'ahead', 'resume')
local seen, ahead = number(kept[1], 0) or 0, number(kept[2], 0) or 0
if seen > server_time + CENTURY then seen = 0 end
if ahead > CENTURY then ahead = 0 end
local now = math.max(server_time + ahead, seen)
local resume = math.min(number(kept[3], 0) or 0, now + MOST_SLOTS_AHEAD)
if seen > 0 and now - seen > LONGEST_SILENCE then resume = now + MOST_SLOTS_AHEAD end
local function keep_time()
  ahead = math.max(now - server_time, 0)
  redis.call('HSET', K.clock, 'seen', text(now), 'ahead', text(ahead), 'resume', text(resume))
end

-- When a script ran, for the clocks of the workers; they begin anew where `ahead` has changed.
local function moment() return text(now) .. ' ' .. text(ahead) end

-- Queues

-- Whether a source's name is one of ours: UTF-8 without blanks or control characters.
local function is_name(source)
  if #source == 0 or #source > 512 or source:find('[%c%s]') then return false end
  if not source:find('[\128-\255]') then return true end
  for _, form in ipairs({'[\194-\223][\128-\191]', '\224[\160-\191][\128-\191]',
    '[\225-\236\238\239][\128-\191][\128-\191]', '\237[\128-\159][\128-\191]',
    '\240[\144-\191][\128-\191][\128-\191]', '[\241-\243][\128-\191][\128-\191][\128-\191]',
    '\244[\128-\143][\128-\191][\128-\191]'}) do -- RFC 3629, section 4
    source = source:gsub(form, 'x')
  end
  return not source:find('[\128-\255]')
end

local function queue_key(source, priority) return K.queue_of .. priority .. ':' .. source end

local function queues_of(source)
  local keys = {}
  for priority = 0, 4 do keys[priority + 1] = queue_key(source, priority) end
  return keys
end

local function held(source)
  local count = attempt('ZCARD', K.delayed_of .. source) or 0
  for _, key in ipairs(queues_of(source)) do count = count + (attempt('LLEN', key) or 0) end
  return count
end

-- Statistics, where a junk value counts as none.
local function add(key, field, count)
  if count ~= 0 then attempt('HINCRBY', key, field, text(count)) end
end

-- A dead letter; `what` is 'entry' (a stored request) or 'seed' (a line of the seed list, as it came).
local function bury(what, body, source, reason, deliveries)
  redis.call('XADD', K.dead, '*', what, body, 'source', source or '', 'reason', reason, 'deliveries', deliveries)
  if source and source ~= '' then add(K.dead_sources, source, 1) end
end

-- Takes a dead letter out again; whether it was there.
local function exhume(id, source)
  if redis.call('XDEL', K.dead, id) == 0 then return false end
  if source and source ~= '' then
    add(K.dead_sources, source, -1)
    if (number(redis.call('HGET', K.dead_sources, source)) or 1) <= 0 then redis.call('HDEL', K.dead_sources, source) end
  end
  return true
end

local function priority_of(entry) return math.min(entry:byte(3) or 0, 4) end

-- Stores a request under a key of its source; false when it is a dead letter instead, and not outstanding.
local function keep(source, entry, command, key, ...)
  if attempt(command, key, ...) then return true end
  bury('entry', entry, source, wrong(key), entry:byte(2) or 0)
  return false
end

local function append(source, entry)
  local key = queue_key(source, priority_of(entry))
  return keep(source, entry, 'RPUSH', key, entry)
end

local function put_back(source, entry)
  local key = queue_key(source, priority_of(entry))
  return keep(source, entry, 'LPUSH', key, entry)
end

-- `unique` keeps two equal requests apart in the sorted set.
local function delay(source, entry, unique, micros)
  return keep(source, entry, 'ZADD', K.delayed_of .. source, text(now + micros), unique .. '\n' .. entry)
end

-- The next request of a source: one whose delay is over, else the head of its highest queue.
local function take(source)
  local delayed = K.delayed_of .. source
  for _, ready in ipairs(attempt('ZRANGEBYSCORE', delayed, '-inf', text(now), 'LIMIT', 0, 100) or {}) do
    redis.call('ZREM', delayed, ready)
    local at = ready:find('\n', 1, true)
    if at then return ready:sub(at + 1) end
    bury('entry', ready, source, 'delayed request that is none of ours', 0)
  end
  for priority = 4, 0, -1 do
    local entry = attempt('LPOP', queue_key(source, priority))
    if entry then return entry end
  end
  return nil
end

local function source_of_domain(domain)
  local named = redis.call('HGET', K.hosts, domain)
  return named and is_name(named) and named or domain
end

-- Whether the catalogue does not name a source, and such are to be refused.
local function refused(source) return A.refuse_unknown and redis.call('HEXISTS', K.limits, source) == 0 end

-- Makes a source known that the catalogue has not told us of.
local function introduce(source)
  if redis.call('HSETNX', K.rates, source, string.format('%.17g', A.min_rate)) == 1 then
    redis.call('SADD', K.sources, source)
  end
end

-- Leases and hands

-- What a lease id says: its number, the generation of its source's circuit when it was granted, and that source.
-- Nothing, for one that is none of ours.
local function parts_of(id)
  local digits, generation, source = id:match('^(%d+)%.(%d+):(.*)$')
  if not number(digits) or not number(generation) or not is_name(source) then return nil end
  return number(digits), number(generation), source
end

-- A worker's leases as {number, generation, source, entry}, the newest first: put back in this order they keep theirs.
-- Those that are none of ours are no leases: the second list.
local function leases_of(worker)
  local fields, leases, foreign = redis.call('HGETALL', K.leases_of .. worker), {}, {}
  for index = 1, #fields, 2 do
    local digits, generation, source = parts_of(fields[index])
    if digits then
      leases[#leases + 1] = {number = digits, generation = generation, source = source, entry = fields[index + 1]}
    else
      foreign[#foreign + 1] = fields[index + 1]
    end
  end
  table.sort(leases, function(a, b) return a.number > b.number end)
  return leases, foreign
end

local FOREIGN_LEASE = 'lease that is none of ours'

-- Seeds in a worker's hand go back to where they came from, in order.
local function return_seeds(worker)
  local in_hand = K.processing_of .. worker
  local seed = redis.call('LPOP', in_hand)
  while seed do
    redis.call('RPUSH', K.seeds, seed)
    seed = redis.call('LPOP', in_hand)
  end
end

-- Whether what a worker holds can go back: its keys are what they should be.
local function can_return(worker)
  for key, kind in pairs({[K.leases_of .. worker] = 'hash', [K.processing_of .. worker] = 'list', [K.seeds] = 'list'}) do
    if not has_type(key, kind) then
      complain(wrong(key))
      return false
    end
  end
  return true
end

-- The seeds in a worker's hand, the one taken first at the head.
local function processing_list(worker)
  local seeds, taken = redis.call('LRANGE', K.processing_of .. worker, 0, -1), {}
  for index = #seeds, 1, -1 do taken[#taken + 1] = seeds[index] end
  return taken
end

-- The rate limit in force; a source not known yet has the minimum, until the leader has set its own.
local function rate_of(source)
  local rate = number(redis.call('HGET', K.rates, source), 0)
  return rate and rate <= 100000 and rate or A.min_rate
end

-- Microseconds between two slots; a rate of 0 has none.
local function interval_of(rate)
  if rate <= 0 then return nil end
  return 1000000 / rate
end

-- Readers of the event streams

local function parts_of_entry(id) -- one that is no stream id has read nothing
  local time, sequence = id:match('^(%d+)-(%d+)$')
  if not time or #time > 16 or #sequence > 16 then return 0, 0 end
  return tonumber(time), tonumber(sequence)
end

local function is_before(a, b)
  local a_time, a_number = parts_of_entry(a)
  local b_time, b_number = parts_of_entry(b)
  if a_time ~= b_time then return a_time < b_time end
  return a_number < b_number
end

-- Stream -> {reader furthest behind, its id}.
local function read_by_all()
  local read, fields = {}, redis.call('HGETALL', K.readers)
  for index = 1, #fields, 2 do
    local reader, stream = fields[index]:match('^(.*)\n(.*)$')
    local id = fields[index + 1]
    if stream and (not read[stream] or is_before(id, read[stream][2])) then read[stream] = {reader, id} end
  end
  return read
end

-- Drops what every reader of a stream has read.
local function drop_read(stream, read)
  if not read[stream] then return end
  local time, sequence = parts_of_entry(read[stream][2])
  redis.call('XTRIM', stream, 'MINID', text(time) .. '-' .. text(sequence))
end
