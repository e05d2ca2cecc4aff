-- Takes what an outbox has for this shard, each once.
--
-- A: from (the outbox); items (as offer.lua returns them); high_water; refuse_unknown; min_rate; circuit; pace; shard; shards.
-- Reply: of each server that has numbered some of these, its name and the number of the last one of them that was taken.
--    {} without a pulse, and nothing was done: then no catalogue says whose these are, and they stay where they are.
--
-- A request counts as outstanding here from now on, and no longer there when that outbox has forgotten it. It is taken even at
-- the high-water mark, as it is one of those in the frontier. Whoever calls this waits until a replica has what it wrote before
-- it lets the outbox forget; so it writes in each case.
--
-- What was found on pages, `links` and `requests`, is here already: whoever calls this has stored it before
-- (state/found_elsewhere.py).
--
-- A request that stays here after MOST_WAYS ways (the shards) is sent where it belongs after a minute, like any other
-- that stands with the wrong source (lease.lua); a seed when offer.lua offers it to this shard itself.
register('receive', function(ctx, K, A)
  local STAYS_US = 60000000

  if redis.call('EXISTS', K.pulse) == 0 then return {} end

  local last_of = {} -- server -> number of the last one that was taken

  local function field_of(server) return 'from:' .. A.from .. ':' .. server end

  local function last_by(server)
    last_of[server] = last_of[server] or tonumber(redis.call('HGET', K.crossings, field_of(server))) or 0
    return last_of[server]
  end

  local seeds, touched, grown, received, kept = {}, {}, 0, 0, 0

  local function take_request(item)
    local name, domain = item.name ~= '' and item.name or nil, item.domain ~= '' and item.domain or nil
    local source = belonging.source_of(ctx, name, domain) or ''
    if exclusions.has_request(ctx, source, item.body, name) then
      exclusions.drop(ctx, source, 'excluded', {item.body})
    elseif not naming.is_valid(source) or rates.refused(ctx, source) then
      dead_letters.add(ctx, 'entry', item.body, source, 'unknown source: ' .. source, queues.deliveries_of(item.body))
    elseif shards.is_elsewhere(ctx, source) and item.hops < MOST_WAYS then -- the catalogue says something else here
      shards.send(ctx, shards.shard_of(ctx, source), 'request', item.body, name, domain, item.micros, item.stray, item.hops + 1)
      grown = grown + 1
    else
      local micros = shards.is_elsewhere(ctx, source) and math.max(item.micros, STAYS_US) or item.micros
      local stored = queues.arrive(ctx, source, item.body, A.from .. '.' .. text(item.number), micros, true, item.stray)
      touched[source] = true
      if stored then grown = grown + 1 end
    end
  end

  -- Takes a seed, or sends it on. One that users have pushed names no source: who reads it finds out.
  local function take_seed(item)
    local name, domain = item.name ~= '' and item.name or nil, item.domain ~= '' and item.domain or nil
    local source = (name or domain) and belonging.source_of(ctx, name, domain)
    if not source or not shards.is_elsewhere(ctx, source) then
      seeds[#seeds + 1] = item.body
      return
    end
    local has_stayed = A.from == 'shard:' .. A.shard
    local stays = item.hops >= MOST_WAYS and not has_stayed
    local shard = stays and A.shard or shards.shard_of(ctx, source)
    shards.send(ctx, shard, 'seed', item.body, name, domain, 0, false, item.hops + 1)
    if stays then kept = kept + 1 end
  end

  for _, packed in ipairs(A.items) do
    local item = shards.item_in(packed)
    if item.number > last_by(item.server) then
      last_of[item.server], received = item.number, received + 1
      if item.kind == 'seed' then
        take_seed(item)
      elseif item.kind == 'request' then
        take_request(item)
      end
    end
  end
  if #seeds > 0 then redis.call('LPUSH', K.seeds, unpack(seeds)) end
  if grown > 0 then redis.call('INCRBY', K.outstanding, grown) end
  due_index.schedule_all(ctx, touched)
  local reply = {}
  for server, last in pairs(last_of) do
    redis.call('HSET', K.crossings, field_of(server), text(last))
    reply[#reply + 1], reply[#reply + 2] = server, text(last)
  end
  redis.call('HINCRBY', K.crossings, 'received', received)
  if kept > 0 then redis.call('HINCRBY', K.crossings, 'kept', kept) end
  return reply
end)
