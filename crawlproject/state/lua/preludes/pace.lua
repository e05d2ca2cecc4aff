-- Pace: the delay that a spider keeps between its own requests to one source, beside that source's rate.
-- needs: clock
-- reads: paced
--
-- A: pace (us between them; 0: no delay).
--
-- It binds this spider's leases alone, neither other spiders nor requests without a lease (robots.txt). What is changed is
-- written once, at the end of a script, by save_paces(). With no delay nothing is read.

local paces = {known = {}, changed = {}} -- source -> when this spider may send to it (us)

if A.pace > 0 then require_type('zset', K.paced) end

local function set_pace(source, at) paces.known[source], paces.changed[source] = at, at end

local function look_up_paces(sources)
  if A.pace <= 0 then return end
  for first = 1, #sources, 1000 do
    local last = math.min(first + 999, #sources)
    for index, score in ipairs(redis.call('ZMSCORE', K.paced, unpack(sources, first, last))) do
      local source, at = sources[first + index - 1], tonumber(score or '') or 0
      paces.known[source] = at
      -- Junk, or a delay that has been shortened; a slot is given out at most half a second ahead.
      if at > now + A.pace + 500000 then set_pace(source, now + A.pace) end
    end
  end
end

-- The moment before which this spider sends nothing to a source; it may be past.
local function paced_until(source)
  if A.pace <= 0 then return 0 end
  if not paces.known[source] then look_up_paces({source}) end
  return paces.known[source]
end

-- The request that had this slot was not sent: it costs the source's next one no delay.
local function undo_pace(source, slot)
  if A.pace > 0 and math.abs(paced_until(source) - slot - A.pace) < 2 then set_pace(source, slot) end
end

-- Writes what has changed, and forgets what is past, a few more than were written. The key expires
-- when nothing has been written for longer than the delay.
local function save_paces()
  local values = {}
  for source, at in pairs(paces.changed) do values[#values + 1], values[#values + 2] = text(at), source end
  if #values == 0 then return end
  for first = 1, #values, 2000 do
    redis.call('ZADD', K.paced, unpack(values, first, math.min(first + 1999, #values)))
  end
  local past = redis.call('ZRANGEBYSCORE', K.paced, '-inf', text(now), 'LIMIT', 0, #values + 100)
  if #past > 0 then redis.call('ZREM', K.paced, unpack(past)) end
  redis.call('PEXPIRE', K.paced, text(A.pace / 1000 + 60000))
end
