-- Turns: spiders that have work for the same source share its slots alike, however often each of them asks.
--
-- A: spider; namespace; horizon.
--
-- K.turns says which spider is ahead of the others there, and by how many slots. It reserves its slots less far ahead, so
-- that those beyond are left to the others until their moment comes. Two horizons ahead, or while another one leaves
-- slots that it could have had (`free`), it does not wait: so no slot is lost where others ask for few. Of more than two
-- spiders, only the one that is ahead waits.
--
-- A spider counts while it has asked for work within two seconds, and is due at the source: not one that is dead, paused
-- or held, or that waits for a delay of its own.
local turns = {}

function state.turns(ctx) return {rivals = {}, ahead = {}, changed = {}, ended = {}, left_to_others = ctx.A.horizon * 0.6} end

-- Which spiders have asked lately; sets `turns.said`, when this one last was seen to.
function turns.look_up_rivals(ctx)
  local found = redis.call('ZRANGEBYSCORE', ctx.K.spiders, text(ctx.now - 2000000), '+inf', 'WITHSCORES', 'LIMIT', 0, 9)
  for index = 1, #found, 2 do
    if found[index] == ctx.spider then
      ctx.turns.said = tonumber(found[index + 1])
    else
      ctx.turns.rivals[#ctx.turns.rivals + 1] = found[index]
    end
  end
end

-- Where the key of this spider is another's.
function turns.key_of(ctx, rival, key) return ctx.tag .. ':' .. rival .. key:sub(#ctx.tag + #ctx.spider + 2) end

-- Looks which sources others are due at, and who is ahead there; `slots` are known.
function turns.look_up(ctx, sources)
  local contested = {}
  for _, rival in ipairs(ctx.turns.rivals) do
    local stand = {} -- place -> those that stand there
    for index, place in ipairs(read_all('HMGET', turns.key_of(ctx, rival, ctx.K.places), sources)) do
      if place then
        stand[place] = stand[place] or {}
        table.insert(stand[place], sources[index])
      end
    end
    for place, names in pairs(stand) do
      for index, score in ipairs(redis.call('ZMSCORE', turns.key_of(ctx, rival, ctx.DUE[place]), unpack(names))) do
        local source, at = names[index], tonumber(score)
        if at and at <= slots.next(ctx, source) + ctx.A.horizon and not ctx.turns.ahead[source] then
          ctx.turns.ahead[source] = {slots = 0}
          contested[#contested + 1] = source
        end
      end
    end
  end
  for index, line in ipairs(read_all('HMGET', ctx.K.turns, contested)) do
    local slots_ahead, free, spider = (line or ''):match('^(%d+)(%+?) (.*)$')
    ctx.turns.ahead[contested[index]] = {spider = spider, slots = tonumber(slots_ahead) or 0, free = free == '+'}
  end
end

function turns.most_ahead(ctx, interval) return math.max(math.ceil(2 * ctx.A.horizon / interval), 8) end

-- How far ahead this spider may reserve slots of a source (us): all of the horizon, or less of it than a worker usually
-- waits between two calls (150 ms), or, for one that others may have no use for, a bit more than that.
function turns.horizon_at(ctx, source, interval)
  local ahead, most = ctx.turns.ahead[source], turns.most_ahead(ctx, interval)
  local is_ahead = ahead and ahead.spider == ctx.spider and ahead.slots > 0 and ahead.slots < most
  if not is_ahead or ahead.free then return ctx.A.horizon end
  return ahead.slots >= most * 7 / 8 and ctx.A.horizon * 0.7 or ctx.A.horizon - ctx.turns.left_to_others
end

-- Notes how many slots this spider has taken, and whether some were left that it could have had. Where it is not ahead it
-- asks a little earlier than others, and so before their share of the horizon begins.
function turns.note(ctx, source, taken, interval, some_left)
  if #ctx.turns.rivals == 0 or not interval then return end
  if ctx.places[source] == false then ctx.turns.ended[#ctx.turns.ended + 1] = source end
  local ahead = ctx.turns.ahead[source]
  if not ahead or ctx.places[source] == false then return end
  local most, lead = turns.most_ahead(ctx, interval), ahead.spider == ctx.spider and ahead.slots or -ahead.slots
  if taken == 0 and not some_left then lead = math.max(lead, 1 - most) end
  lead = lead + taken
  if lead <= 0 then ahead.free = some_left
  elseif ahead.spider ~= ctx.spider then ahead.spider, ahead.free = ctx.spider, false end
  ahead.slots = math.min(math.abs(lead), most)
  if ahead.spider then ctx.turns.changed[source] = ahead end
  if lead <= 0 and ctx.moves[source] then ctx.moves[source] = ctx.moves[source] - ctx.A.horizon + ctx.turns.left_to_others end
end

-- Writes what has changed; all is forgotten when nothing has been for an hour.
function turns.save(ctx)
  if not ctx.turns.said or ctx.turns.said < ctx.now - 500000 or ctx.turns.said > ctx.now then
    redis.call('ZADD', ctx.K.spiders, text(ctx.now), ctx.spider)
  end
  local values = {}
  for source, ahead in pairs(ctx.turns.changed) do
    values[#values + 1], values[#values + 2] = source, text(ahead.slots) .. (ahead.free and '+ ' or ' ') .. ahead.spider
  end
  if #ctx.turns.ended > 0 then redis.call('HDEL', ctx.K.turns, unpack(ctx.turns.ended)) end
  if #values > 0 then
    redis.call('HSET', ctx.K.turns, unpack(values))
    redis.call('PEXPIRE', ctx.K.turns, 3600000)
  end
end
