-- Readers of the event streams: how far each has come, and who reads as it at present. Each is a field of one hash, as msgpack:
--    {holder (one process), host, pid, output (of that process), since, until (when its lease ends), read (when it noted
--    events last), last (stream -> id of the last entry read), numbers (stream -> how many entries there were up to that,
--    where it is known), lengths (id of a file -> how long it was when its last events were noted)}
-- Times are us of Redis' clock. A holder stays named when its lease has ended: it may go on while nobody else has taken it.
local readers = {}

function state.EVENT_STREAMS(ctx)
  local K = ctx.K
  return {K.image_events, K.probe_events, K.link_rot_events, K.failed_events, K.page_events, K.media_events, K.halted_events,
    K.resumed_events}
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

function readers.of(ctx, name)
  local packed = redis.call('HGET', ctx.K.readers, name)
  return packed and cmsgpack.unpack(packed)
end

function readers.save(ctx, name, reader) redis.call('HSET', ctx.K.readers, name, cmsgpack.pack(reader)) end

-- Stream -> {reader furthest behind, its id}.
function readers.read_by_all(ctx)
  local positions, fields = {}, redis.call('HGETALL', ctx.K.readers)
  for index = 1, #fields, 2 do
    for stream, id in pairs(cmsgpack.unpack(fields[index + 1]).last) do
      if not positions[stream] or readers.is_before(id, positions[stream][2]) then positions[stream] = {fields[index], id} end
    end
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

-- Gives a process the lease of a reader, for `ttl` us.
function readers.lease_to(ctx, reader, holder, ttl)
  if reader.holder ~= holder.holder then reader.since = ctx.server_time end
  for field, value in pairs(holder) do reader[field] = value end
  reader['until'] = ctx.server_time + ttl
end
