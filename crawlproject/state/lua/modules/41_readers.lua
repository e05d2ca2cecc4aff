-- Readers of the event streams: how far each has come, and who reads as it at present.
local readers = {}

function state.EVENT_STREAMS(ctx)
  return {
    ctx.K.image_events, ctx.K.probe_events, ctx.K.link_rot_events, ctx.K.failed_events, ctx.K.page_events, ctx.K.halted_events, ctx.K.resumed_events
  }
end

-- Whether Redis denies what needs memory; to be called before the first write.
function readers.out_of_memory(ctx)
  local reply = redis.pcall('SETRANGE', ctx.K.pulse, 0, '') -- changes nothing
  return type(reply) == 'table' and reply.err ~= nil and reply.err:find('OOM', 1, true) ~= nil
end

function readers.parts_of_entry(id) -- something that is not a stream id has read nothing
  local time, sequence = id:match('^(%d+)-(%d+)$')
  if not time or #time > 16 or #sequence > 16 then return 0, 0 end
  return tonumber(time), tonumber(sequence)
end

function readers.is_before(a, b)
  local a_time, a_number = readers.parts_of_entry(a)
  local b_time, b_number = readers.parts_of_entry(b)
  if a_time ~= b_time then return a_time < b_time end
  return a_number < b_number
end

-- Stream -> {reader furthest behind, its id}.
function readers.read_by_all(ctx)
  local positions, fields = {}, redis.call('HGETALL', ctx.K.readers)
  for index = 1, #fields, 2 do
    local reader, stream = fields[index]:match('^(.*)\n(.*)$')
    local id = fields[index + 1]
    if stream and (not positions[stream] or readers.is_before(id, positions[stream][2])) then positions[stream] = {reader, id} end
  end
  return positions
end

-- Drops what every reader of a stream has read, 20,000 entries at most: more would hold Redis up.
function readers.drop_read(stream, positions)
  if not positions[stream] then return end
  local time, sequence = readers.parts_of_entry(positions[stream][2])
  local id = text(time) .. '-' .. text(sequence)
  local dropped = redis.call('XTRIM', stream, 'MINID', '~', id, 'LIMIT', 20000) -- in whole nodes, of a hundred entries
  if dropped < 19000 then redis.call('XTRIM', stream, 'MINID', id) end
end

-- A lease is in the hash of its reader: `holder`, one process, and `until` (us of Redis' clock) when it ends.
-- A holder stays named there when its lease has ended: as long as nobody else has taken it, it may go on.
function readers.redis_time()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Takes away before it gives: goes well when Redis is out of memory, too.
function readers.put(key, field, value)
  redis.call('HDEL', key, field)
  redis.call('HSET', key, field, value)
end

-- What is left of a lease (us), of `ttl` at most: a clock that was set back keeps no dead holder's alive for longer.
function readers.left_of_lease(key, ttl)
  local now = readers.redis_time()
  local left = (tonumber(redis.call('HGET', key, 'until')) or 0) - now
  if left > ttl then
    readers.put(key, 'until', text(now + ttl))
    return ttl
  end
  return math.max(left, 0)
end

function readers.lease_to(key, holder, ttl)
  if redis.call('HGET', key, 'holder') ~= holder.holder then readers.put(key, 'since', text(readers.redis_time())) end
  for field, value in pairs(holder) do readers.put(key, field, value) end
  readers.put(key, 'until', text(readers.redis_time() + ttl))
end
