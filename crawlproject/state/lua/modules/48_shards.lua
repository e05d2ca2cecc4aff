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

-- Sends a seed (a line of the seed list), a request, what was found on pages (`links`, `requests`: `count` in one item), or
-- what others have written (`foreign`) to another shard; false when its outbox holds something else. A request that was
-- stored counts as outstanding here until that shard has it. It is of the source that `name` and `domain` tell, as to
-- belonging.lua; `micros` is after which time, `stray` whether behind all others, `hops` how many such ways it has come
-- by then, in one go (none: this is the first).
function shards.send(ctx, shard, kind, body, name, domain, micros, stray, hops, count)
  ctx.outbox.last = math.max(ctx.outbox.last + 1, ctx.now)
  ctx.outbox.server = ctx.server:sub(1, 8) -- new at each start
  local item = cmsgpack.pack({text(ctx.outbox.last), kind, body, name or '', domain or '', text(micros or 0), stray and 1 or 0,
    ctx.outbox.server, hops or 1, count or 0})
  if not redis.call('RPUSH', ctx.K.outbox_of .. shard, item) then return false end
  redis.call('SET', ctx.K.outbox_sequence, text(ctx.outbox.last))
  redis.call('HINCRBY', ctx.K.crossings, 'sent', 1)
  return true
end

local KINDS_SENT = {seed = true, request = true, links = true, requests = true, foreign = true}

-- What stands in an outbox; nil for what is not written by crawlproject.
function shards.item_in(packed)
  local fine, found = pcall(cmsgpack.unpack, packed)
  if not fine or type(found) ~= 'table' then return nil end
  local item = {number = number(found[1], 1), kind = found[2], body = found[3], name = found[4], domain = found[5]}
  item.micros, item.stray, item.server = number(found[6], 0), found[7] == 1, type(found[8]) == 'string' and found[8] or ''
  item.hops, item.count = number(found[9], 1) or 1, number(found[10], 0) or 0
  local is_ours = item.number and item.micros and KINDS_SENT[item.kind]
  return is_ours and type(item.body) == 'string' and type(item.name) == 'string' and type(item.domain) == 'string' and item or nil
end
