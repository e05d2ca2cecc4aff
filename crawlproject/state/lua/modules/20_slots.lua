-- Send slots: the next free one of each source.
--
-- Slots are written once, at the end of a call, by slots.save().
local slots = {}

local LAST = 'last ' -- stands before a source for its last slot that was given out: names have no spaces

-- What is known; what is to be written
function state.slots() return {} end
function state.changed_slots() return {} end

-- The next free slot as it was last set, or false.
function slots.free_at(ctx, source)
  if ctx.slots[source] == nil then ctx.slots[source] = tonumber(redis.call('ZSCORE', ctx.K.slots, source)) or false end
  return ctx.slots[source]
end

function slots.set(ctx, source, slot)
  ctx.slots[source] = slot
  ctx.changed_slots[source] = slot
end

-- Notes that a slot has been given out, and which is free by now.
function slots.give(ctx, source, slot, free)
  ctx.changed_slots[LAST .. source] = slot
  slots.set(ctx, source, free)
end

-- Counts the next free slot anew, from the last one that was given out; where that is not known any more it is past.
function slots.recount(ctx, source, interval)
  if not slots.free_at(ctx, source) then return end
  local last = ctx.changed_slots[LAST .. source] or tonumber(redis.call('ZSCORE', ctx.K.slots, LAST .. source)) or ctx.now
  slots.set(ctx, source, last + interval)
end

function slots.save(ctx)
  local values = {}
  for source, slot in pairs(ctx.changed_slots) do values[#values + 1], values[#values + 2] = text(slot), source end
  write_all('ZADD', ctx.K.slots, values)
end

-- The next slot that can be given out.
function slots.next(ctx, source) return math.max(slots.free_at(ctx, source) or 0, ctx.now) end

-- Pace: the delay that a spider keeps between its own requests to one source, beside that source's rate.
--
-- A: pace (us between them; 0: no delay).
--
-- It binds this spider's leases alone, neither other spiders nor requests without a lease (robots.txt). What is changed is
-- written once, at the end of a call, by pace.save(). With no delay nothing is read.
local pace = {}

-- source -> when this spider may send to it (us)
function state.paces() return {known = {}, changed = {}} end

function pace.set(ctx, source, at) ctx.paces.known[source], ctx.paces.changed[source] = at, at end

function pace.look_up(ctx, sources)
  if ctx.A.pace <= 0 then return end
  for index, score in ipairs(read_all('ZMSCORE', ctx.K.paced, sources)) do
    local source, at = sources[index], tonumber(score) or 0
    ctx.paces.known[source] = at
    -- The delay has been shortened; a slot is given out at most 0.7 s ahead (RENEWAL_S in politeness/slots.py).
    if at > ctx.now + ctx.A.pace + 700000 then pace.set(ctx, source, ctx.now + ctx.A.pace) end
  end
end

-- The moment before which this spider sends nothing to a source; it may be past.
function pace.free_at(ctx, source)
  if ctx.A.pace <= 0 then return 0 end
  if not ctx.paces.known[source] then pace.look_up(ctx, {source}) end
  return ctx.paces.known[source]
end

-- The request that had this slot was not sent: it costs the source's next one no delay.
function pace.undo(ctx, source, slot)
  if ctx.A.pace > 0 and math.abs(pace.free_at(ctx, source) - slot - ctx.A.pace) < 2 then pace.set(ctx, source, slot) end
end

-- Writes what has changed, and forgets what is past, a few more than were written. The key expires
-- when nothing has been written for longer than the delay.
function pace.save(ctx)
  local values = {}
  for source, at in pairs(ctx.paces.changed) do values[#values + 1], values[#values + 2] = text(at), source end
  if #values == 0 then return end
  write_all('ZADD', ctx.K.paced, values)
  write_all('ZREM', ctx.K.paced, redis.call('ZRANGEBYSCORE', ctx.K.paced, '-inf', text(ctx.now), 'LIMIT', 0, #values + 100))
  redis.call('PEXPIRE', ctx.K.paced, text(ctx.A.pace / 1000 + 60000))
end

-- Waits: which spider a source's next slots are left to, where several have work for it.
--
-- A: horizon (us ahead that slots are reserved).
--
-- Slots are taken as they come, so a spider with many workers finds nearly all of them first. A spider that finds fewer than
-- others have taken since it last came notes that it waits, if no other does. Others then reserve slots of that source only
-- shortly before their moment, until it has had some: it comes again within 400 ms or so, and takes what is free by then.
-- Where it does not come, its note holds until a horizon after the slot that it waits for.
local waits = {}

local LEFT_TO_IT = 0.8 -- part of the horizon

-- source -> the spider that waits, if one does; what is to be written
function state.waits() return {known = {}, changed = {}, ended = {}} end

function waits.look_up(ctx, sources)
  for index, line in ipairs(read_all('HMGET', ctx.K.waiting_spiders, sources)) do
    local ends, spider = (line or ''):match('^(%d+) (.*)$')
    if spider and tonumber(ends) > ctx.now then ctx.waits.known[sources[index]] = spider end
  end
end

-- How far ahead this spider may reserve slots of a source (us).
function waits.horizon_at(ctx, source)
  local known = ctx.waits.known[source]
  return known and known ~= ctx.spider and ctx.A.horizon * (1 - LEFT_TO_IT) or ctx.A.horizon
end

-- Notes that this spider, which has more work for a source, was given slots for `had` us, and others for `others_had` us since
-- it last came.
function waits.note(ctx, source, had, others_had)
  local known, slot, last = ctx.waits.known[source], slots.next(ctx, source), ctx.now + ctx.A.horizon
  if known and known ~= ctx.spider then return end
  if others_had > had and slot > last and pace.free_at(ctx, source) <= last then
    local changed = ctx.waits.changed
    changed[#changed + 1], changed[#changed + 2] = source, text(slot + ctx.A.horizon) .. ' ' .. ctx.spider
  elseif known and had > 0 then
    ctx.waits.ended[#ctx.waits.ended + 1] = source
  end
end

function waits.save(ctx)
  write_all('HDEL', ctx.K.waiting_spiders, ctx.waits.ended)
  if #ctx.waits.changed == 0 then return end
  write_all('HSET', ctx.K.waiting_spiders, ctx.waits.changed)
  redis.call('PEXPIRE', ctx.K.waiting_spiders, 3600000)
end
