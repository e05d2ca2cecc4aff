-- First prelude of every script: the clock, the stored request, the queues.
-- `K` (key names, from store/keys.py) and `A` (the arguments, unpacked) are defined before it.
--
-- A stored request ("entry") is opaque but for its first three bytes: version, deliveries, priority.
-- Times are microseconds of this server's clock, the only one that decides anything.

local function text(number) return string.format('%.0f', number) end

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local now = clock()

local function queue_key(source, priority) return K.queue_of .. priority .. ':' .. source end

local function queues_of(source)
  local keys = {}
  for priority = 0, 4 do keys[priority + 1] = queue_key(source, priority) end
  return keys
end

local function held(source)
  local count = redis.call('ZCARD', K.delayed_of .. source)
  for _, key in ipairs(queues_of(source)) do count = count + redis.call('LLEN', key) end
  return count
end

local function priority_of(entry) return math.min(entry:byte(3) or 0, 4) end

local function append(source, entry)
  redis.call('RPUSH', queue_key(source, priority_of(entry)), entry)
end

local function put_back(source, entry)
  redis.call('LPUSH', queue_key(source, priority_of(entry)), entry)
end

-- `unique` keeps two equal requests apart in the sorted set.
local function delay(source, entry, unique, micros)
  redis.call('ZADD', K.delayed_of .. source, text(now + micros), unique .. '\n' .. entry)
end

-- The next request of a source: one whose delay is over, else the head of its highest queue.
local function take(source)
  local delayed = K.delayed_of .. source
  local ready = redis.call('ZRANGEBYSCORE', delayed, '-inf', text(now), 'LIMIT', 0, 1)[1]
  if ready then
    redis.call('ZREM', delayed, ready)
    return ready:sub(ready:find('\n', 1, true) + 1)
  end
  for priority = 4, 0, -1 do
    local entry = redis.call('LPOP', queue_key(source, priority))
    if entry then return entry end
  end
  return nil
end

local function source_of_domain(domain) return redis.call('HGET', K.hosts, domain) or domain end

-- Whether the catalogue does not name a source, and such are to be refused.
local function refused(source) return A.refuse_unknown and redis.call('HEXISTS', K.limits, source) == 0 end

-- Makes a source known that the catalogue has not told us of.
local function introduce(source)
  if redis.call('HSETNX', K.rates, source, string.format('%.17g', A.min_rate)) == 1 then
    redis.call('SADD', K.sources, source)
  end
end

-- What a lease id says: its number, the generation of its source's circuit when it was granted, and that source.
local function parts_of(id)
  local number, generation, source = id:match('^(%d+)%.(%d+):(.*)$')
  return tonumber(number), tonumber(generation), source
end

-- A worker's leases as {number, generation, source, entry}, the newest first: put back in this order they keep theirs.
local function leases_of(worker)
  local fields, leases = redis.call('HGETALL', K.leases_of .. worker), {}
  for index = 1, #fields, 2 do
    local number, generation, source = parts_of(fields[index])
    leases[#leases + 1] = {number = number, generation = generation, source = source, entry = fields[index + 1]}
  end
  table.sort(leases, function(a, b) return a.number > b.number end)
  return leases
end

-- Seeds in a worker's hand go back to where they came from, in order.
local function return_seeds(worker)
  local in_hand = K.in_hand_of .. worker
  local seed = redis.call('LPOP', in_hand)
  while seed do
    redis.call('RPUSH', K.seeds, seed)
    seed = redis.call('LPOP', in_hand)
  end
end

-- The seeds in a worker's hand, the one taken first at the head.
local function seeds_in_hand(worker)
  local seeds, taken = redis.call('LRANGE', K.in_hand_of .. worker, 0, -1), {}
  for index = #seeds, 1, -1 do taken[#taken + 1] = seeds[index] end
  return taken
end

-- A dead letter; `what` is 'entry' (a stored request) or 'seed' (a line of the seed list, as it came).
local function bury(what, body, source, reason, deliveries)
  redis.call('XADD', K.dead, '*', what, body, 'source', source, 'reason', reason, 'deliveries', deliveries)
end

-- Scripts do not roll back: whatever could fail for its type is looked at before the first write.
local function require_type(key, expected)
  local found = redis.call('TYPE', key).ok
  if found ~= 'none' and found ~= expected then
    error('WRONGTYPE ' .. key .. ' is a ' .. found .. ', not a ' .. expected .. ': remove or rename it', 0)
  end
end

-- An operator's slip (`set` for `sadd`) shall stop a script before it has written anything.
for kind, keys in pairs({
  set = {K.halted, K.temp_halted, K.troubled, K.sources},
  zset = {K.slots, K.due_fast, K.due_mid, K.due_slow, K.workers},
  hash = {K.rates, K.limits, K.hosts, K.options, K.totals},
}) do
  for _, key in ipairs(keys) do require_type(key, kind) end
end

-- The rate limit in force; a source not known yet has the minimum, until the leader has set its own.
local function rate_of(source)
  return tonumber(redis.call('HGET', K.rates, source) or '') or A.min_rate
end

-- Microseconds between two slots; a rate of 0 has none.
local function interval_of(rate)
  if rate <= 0 then return nil end
  return 1000000 / rate
end
