-- Shards: which of them a source is in, and what goes from this one to another: by an outbox for each of those.
--
-- A: shard (the number of this one), shards (how many there are; none: one, and nothing goes anywhere).
--
-- What is in an outbox has numbers, each above those before it, and a shard takes of an outbox only what is above the
-- last number that it took. So it takes each once, however often it is offered, and whoever offers it. A server that has lost
-- its last second, or a replica that takes over without it, may give numbers again that another shard knows, where its clock is
-- behind: so what is sent names the server that has numbered it, and each one's numbers are taken for themselves.
--
-- While the shards know different catalogues, each may take something for another one's. After MOST_WAYS such ways it stays where
-- it is for a while: a request among those that wait, a seed in the outbox from this shard to itself.
local shards = {}

local MOST_WAYS = 3

function state.outbox(ctx) return ctx.A.shards and {last = tonumber(redis.call('GET', ctx.K.outbox_sequence) or 0)} end

-- The number of the shard that a source is in; state/shards.py says the same.
function shards.shard_of(ctx, source) return tonumber(redis.sha1hex(source):sub(1, 8), 16) % ctx.A.shards end

function shards.is_elsewhere(ctx, source) return ctx.outbox and shards.shard_of(ctx, source) ~= ctx.A.shard end

-- Sends a seed (a line of the seed list), a request, or what was found on pages (`links`, `requests`: `count` in one item)
-- to another shard. A request that was stored counts as outstanding here until that shard has it. It is of the source that
-- `name` and `domain` tell, as to belonging; `micros` is after which time, `stray` whether behind all others, `hops` how
-- many such ways it has come by then, in one go (none: this is the first).
function shards.send(ctx, shard, kind, body, name, domain, micros, stray, hops, count)
  ctx.outbox.last = math.max(ctx.outbox.last + 1, ctx.now)
  local item = cmsgpack.pack({text(ctx.outbox.last), kind, body, name or '', domain or '', text(micros or 0), stray and 1 or 0,
    ctx.server:sub(1, 8), hops or 1, count or 0}) -- the server has a new name at each start
  redis.call('RPUSH', ctx.K.outbox_of .. shard, item)
  redis.call('SET', ctx.K.outbox_sequence, text(ctx.outbox.last))
  redis.call('HINCRBY', ctx.K.crossings, 'sent', 1)
end

-- How many requests are on their way to other shards, which count as outstanding here.
function shards.outstanding_of(ctx)
  local count = 0
  for shard = 0, (ctx.A.shards or 0) - 1 do
    for _, packed in ipairs(redis.call('LRANGE', ctx.K.outbox_of .. shard, 0, -1)) do
      if shards.item_in(packed).kind == 'request' then count = count + 1 end
    end
  end
  return count
end

-- What stands in an outbox.
function shards.item_in(packed)
  local found = cmsgpack.unpack(packed)
  return {number = tonumber(found[1]), kind = found[2], body = found[3], name = found[4], domain = found[5],
    micros = tonumber(found[6]), stray = found[7] == 1, server = found[8], hops = found[9], count = found[10]}
end
