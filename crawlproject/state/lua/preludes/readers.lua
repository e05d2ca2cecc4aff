-- Readers of the event streams, and how far each has come.
-- needs: numbers
-- types: hash readers, stream image_events link_rot_events halted_events resumed_events

local EVENT_STREAMS = {K.image_events, K.link_rot_events, K.halted_events, K.resumed_events}

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

-- Drops what every reader of a stream has read.
local function drop_read(stream, positions)
  if not positions[stream] then return end
  local time, sequence = parts_of_entry(positions[stream][2])
  redis.call('XTRIM', stream, 'MINID', text(time) .. '-' .. text(sequence))
end
