-- Turns: spiders that have work for the same source share its slots alike, however often each of them asks.
-- needs: due
-- reads: spiders turns
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

local turns = {rivals = {}, ahead = {}, changed = {}, ended = {}, left_to_others = A.horizon * 0.6}

-- Which spiders have asked lately; sets `turns.said`, when this one last was seen to.
local function look_up_rivals()
  local found = read('zset', 'ZRANGEBYSCORE', K.spiders, text(now - 2000000), '+inf', 'WITHSCORES', 'LIMIT', 0, 9)
  for index = 1, #found, 2 do
    if found[index] == A.spider then
      turns.said = tonumber(found[index + 1])
    else
      turns.rivals[#turns.rivals + 1] = found[index]
    end
  end
  if #turns.rivals > 0 then require_type('hash', K.turns) end
end

-- Where the key of this spider is another's.
local function key_of(rival, key) return A.namespace .. ':' .. rival .. key:sub(#A.namespace + #A.spider + 2) end

-- Looks which sources others are due at, and who is ahead there; `slots` are known.
local function look_up_turns(sources)
  local contested = {}
  for _, rival in ipairs(turns.rivals) do
    local stand = {} -- place -> those that stand there
    for first = 1, #sources, 1000 do
      local found = attempt('HMGET', key_of(rival, K.places), unpack(sources, first, math.min(first + 999, #sources)))
      for index, place in ipairs(found or {}) do
        if place and DUE[place] then
          stand[place] = stand[place] or {}
          table.insert(stand[place], sources[first + index - 1])
        end
      end
    end
    for place, names in pairs(stand) do
      for index, score in ipairs(attempt('ZMSCORE', key_of(rival, DUE[place]), unpack(names)) or {}) do
        local source, at = names[index], tonumber(score or '')
        if at and at <= next_slot(source) + A.horizon and not turns.ahead[source] then
          turns.ahead[source] = {slots = 0}
          contested[#contested + 1] = source
        end
      end
    end
  end
  for first = 1, #contested, 1000 do
    local last = math.min(first + 999, #contested)
    for index, line in ipairs(redis.call('HMGET', K.turns, unpack(contested, first, last))) do
      local slots_ahead, free, spider = (line or ''):match('^(%d+)(%+?) (.*)$')
      turns.ahead[contested[first + index - 1]] = {spider = spider, slots = number(slots_ahead) or 0, free = free == '+'}
    end
  end
end

local function most_ahead(interval) return math.max(math.ceil(2 * A.horizon / interval), 8) end

-- How far ahead this spider may reserve slots of a source (us): all of the horizon, or less of it than a worker usually
-- waits between two calls (150 ms), or, for one that others may have no use for, a bit more than that.
local function horizon_at(source, interval)
  local ahead, most = turns.ahead[source], most_ahead(interval)
  if not ahead or ahead.spider ~= A.spider or ahead.slots == 0 or ahead.slots >= most or ahead.free then return A.horizon end
  return ahead.slots >= most * 7 / 8 and A.horizon * 0.7 or A.horizon - turns.left_to_others
end

-- Notes how many slots this spider has taken, and whether some were left that it could have had. Where it is not ahead it
-- asks a little earlier than others, and so before their share of the horizon begins.
local function note_turn(source, taken, interval, some_left)
  if #turns.rivals == 0 or not interval then return end
  if places[source] == false then turns.ended[#turns.ended + 1] = source end
  local ahead = turns.ahead[source]
  if not ahead or places[source] == false then return end
  local most, lead = most_ahead(interval), ahead.spider == A.spider and ahead.slots or -ahead.slots
  if taken == 0 and not some_left then lead = math.max(lead, 1 - most) end
  lead = lead + taken
  if lead <= 0 then ahead.free = some_left
  elseif ahead.spider ~= A.spider then ahead.spider, ahead.free = A.spider, false end
  ahead.slots = math.min(math.abs(lead), most)
  if ahead.spider then turns.changed[source] = ahead end
  if lead <= 0 and moves[source] then moves[source] = moves[source] - A.horizon + turns.left_to_others end
end

-- Writes what has changed; all is forgotten when nothing has been for an hour.
local function save_turns()
  if not turns.said or turns.said < now - 500000 or turns.said > now then
    redis.call('ZADD', K.spiders, text(now), A.spider)
  end
  local values = {}
  for source, ahead in pairs(turns.changed) do
    values[#values + 1], values[#values + 2] = source, text(ahead.slots) .. (ahead.free and '+ ' or ' ') .. ahead.spider
  end
  if #turns.ended > 0 then redis.call('HDEL', K.turns, unpack(turns.ended)) end
  if #values > 0 then
    redis.call('HSET', K.turns, unpack(values))
    redis.call('PEXPIRE', K.turns, 3600000)
  end
end
