-- Readers of the event streams: how far each has come, and who reads as it at present.
-- needs: numbers
-- types: hash readers, stream image_events probe_events link_rot_events failed_events page_events halted_events resumed_events

local EVENT_STREAMS = {
  K.image_events, K.probe_events, K.link_rot_events, K.failed_events, K.page_events, K.halted_events, K.resumed_events
}

-- Whether Redis denies what needs memory; to be called before the first write.
local function out_of_memory()
  local reply = redis.pcall('SETRANGE', K.pulse, 0, '') -- changes nothing
  return type(reply) == 'table' and reply.err ~= nil and reply.err:find('OOM', 1, true) ~= nil
end

local function parts_of_entry(id) -- something that is not a stream id has read nothing
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
  local positions, fields = {}, redis.call('HGETALL', K.readers)
  for index = 1, #fields, 2 do
    local reader, stream = fields[index]:match('^(.*)\n(.*)$')
    local id = fields[index + 1]
    if stream and (not positions[stream] or is_before(id, positions[stream][2])) then positions[stream] = {reader, id} end
  end
  return positions
end

-- Drops what every reader of a stream has read, 20,000 entries at most: more would hold Redis up.
local function drop_read(stream, positions)
  if not positions[stream] then return end
  local time, sequence = parts_of_entry(positions[stream][2])
  local id = text(time) .. '-' .. text(sequence)
  local dropped = redis.call('XTRIM', stream, 'MINID', '~', id, 'LIMIT', 20000) -- in whole nodes, of a hundred entries
  if dropped < 19000 then redis.call('XTRIM', stream, 'MINID', id) end
end

-- A lease is in the hash of its reader: `holder`, one process, and `until` (us of Redis' clock) when it ends.
-- A holder stays named there when its lease has ended: as long as nobody else has taken it, it may go on.
local function redis_time()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Takes away before it gives: goes well when Redis is out of memory, too.
local function put(key, field, value)
  redis.call('HDEL', key, field)
  redis.call('HSET', key, field, value)
end

-- What is left of a lease (us), of `ttl` at most: a clock that was set back keeps no dead holder's alive for longer.
local function left_of_lease(key, ttl)
  local now = redis_time()
  local left = (number(redis.call('HGET', key, 'until'), 0) or 0) - now
  if left > ttl then
    put(key, 'until', text(now + ttl))
    return ttl
  end
  return math.max(left, 0)
end

local function lease_to(key, holder, ttl)
  if redis.call('HGET', key, 'holder') ~= holder.holder then put(key, 'since', text(redis_time())) end
  for field, value in pairs(holder) do put(key, field, value) end
  put(key, 'until', text(redis_time() + ttl))
end
