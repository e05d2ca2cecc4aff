-- Shards: which of them a source is in, and what waits here for another one.
--
-- A: shard (the number of this one), shards (how many there are; none: one, and nothing goes anywhere); overflow_maxlen (most
--    entries in the list for one shard).
--
-- What belongs to another shard is an entry of the list for that one: a map with `kind` and what its intake takes.
--    seed: `seed`, a line of the seed list, which goes to that shard's (receive.lua)
--    new: the fields of NewRequest (state/calls/frontier.py) (enqueue.lua)
--    request: one that was admitted before (take_in below; receive.lua)
--    link: `entry`, `digest` and `host` of a link found on a page, `source` and `domain` of its group, `page`, which links
--       of one page have in common, and how many may be admitted (discover.lua)
-- A forwarder gives a batch of them at a time to that shard, and then forgets it (frontier/forwarding.py).
local shards = {}

-- After which time a request that has come from another shard, and by this one's catalogue belongs to a third, goes there, as
-- one that stands with the wrong source (lease.lua). So long waits, too, what the full list of its shard does not take.
local STAYS_US = 60000000

-- shard -> length of the list for it
function state.foreign() return {} end

-- The number of the shard that a source is in; state/shards.py says the same.
function shards.shard_of(ctx, source) return tonumber(redis.sha1hex(source):sub(1, 8), 16) % ctx.A.shards end

function shards.is_elsewhere(ctx, source) return ctx.A.shards and shards.shard_of(ctx, source) ~= ctx.A.shard end

-- Whether the list for a shard takes one more.
function shards.has_room(ctx, shard)
  if not ctx.foreign[shard] then ctx.foreign[shard] = redis.call('LLEN', ctx.K.foreign_of .. shard) end
  return ctx.foreign[shard] < ctx.A.overflow_maxlen
end

-- Has an entry wait for a shard; returns whether its list has room for it.
function shards.send(ctx, shard, kind, entry)
  if not shards.has_room(ctx, shard) then return false end
  entry.kind = kind
  ctx.foreign[shard] = redis.call('RPUSH', ctx.K.foreign_of .. shard, cmsgpack.pack(entry))
  return true
end

-- Stores a request that was in a frontier before, where it belongs by now, and counts it there: its `entry`, the `source` that its seed
-- names and its `domain` (see belonging), `micros` that it waits (nil: none); a `stray` goes behind what waits. `payer` is the source
-- that it was another try of; `unique` keeps two equal ones apart; one that `has_come` from another shard stays here.
function shards.take_in(ctx, request, unique, payer, has_come)
  local entry, micros = request.entry, request.micros or 0
  local source = belonging.source_of(ctx, request.source, request.domain)
  if exclusions.has_request(ctx, source, entry) then return exclusions.drop(ctx, source, 'excluded', {entry}) end
  if rates.refused(ctx, source) then
    return dead_letters.add(ctx, 'entry', entry, source, 'unknown source: ' .. source, queues.deliveries_of(entry))
  end
  if shards.is_elsewhere(ctx, source) then
    if not has_come and shards.send(ctx, shards.shard_of(ctx, source), 'request', request) then return end
    micros = math.max(micros, STAYS_US)
  end
  queues.arrive(ctx, source, entry, unique, micros, source ~= payer, request.stray)
end

-- How many entries wait for other shards.
function shards.waiting(ctx)
  local count = 0
  for shard = 0, (ctx.A.shards or 0) - 1 do
    count = count + redis.call('LLEN', ctx.K.foreign_of .. shard) + math.max(redis.call('LLEN', ctx.K.batch_of .. shard) - 1, 0)
  end
  return count
end
