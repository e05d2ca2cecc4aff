-- Readers of the event streams: how far each has come, and who reads as it at present.
local readers = {}

function state.EVENT_STREAMS(ctx)
  local K = ctx.K
  return {K.image_events, K.probe_events, K.link_rot_events, K.failed_events, K.page_events, K.halted_events, K.resumed_events}
end

-- Whether Redis has no memory left for others.
function readers.is_memory_full()
  local memory = redis.call('INFO', 'memory')
  local function bytes(name) return tonumber(memory:match('\n' .. name .. ':(%d+)')) end
  local most = bytes('maxmemory')
  return most > 0 and bytes('used_memory') - bytes('mem_not_counted_for_evict') > most
end

function readers.parts_of_entry(id)
  local time, sequence = id:match('^(%d+)-(%d+)$')
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
  local id = positions[stream][2]
  local dropped = redis.call('XTRIM', stream, 'MINID', '~', id, 'LIMIT', 20000) -- in whole nodes, of a hundred entries
  if dropped < 19000 then redis.call('XTRIM', stream, 'MINID', id) end
end

-- A lease is in the hash of its reader: `holder`, one process, and `until` (us of Redis' clock) when it ends.
-- A holder stays named there when its lease has ended: as long as nobody else has taken it, it may go on.
-- What is left of a lease (us), of `ttl` at most: a clock that was set back keeps no dead holder's alive for longer.
function readers.left_of_lease(ctx, key, ttl)
  local left = (tonumber(redis.call('HGET', key, 'until')) or 0) - ctx.server_time
  if left > ttl then
    redis.call('HSET', key, 'until', text(ctx.server_time + ttl))
    return ttl
  end
  return math.max(left, 0)
end

function readers.lease_to(ctx, key, holder, ttl)
  if redis.call('HGET', key, 'holder') ~= holder.holder then redis.call('HSET', key, 'since', text(ctx.server_time)) end
  for field, value in pairs(holder) do redis.call('HSET', key, field, value) end
  redis.call('HSET', key, 'until', text(ctx.server_time + ttl))
end

function readers.forget(ctx, name)
  local reply = {'forgotten'}
  for _, field in ipairs(redis.call('HKEYS', ctx.K.readers)) do
    local reader, stream = field:match('^(.*)\n(.*)$')
    if reader == name then
      reply[#reply + 1], reply[#reply + 2] = stream, redis.call('HGET', ctx.K.readers, field)
      redis.call('HDEL', ctx.K.readers, field)
    end
  end
  if redis.call('DEL', ctx.K.reader_of .. name) == 0 and #reply == 1 then return {'unknown'} end
  return reply
end
