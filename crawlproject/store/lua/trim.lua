-- Keeps the event streams and the slots within bounds.
--
-- A: fence; maxlen; ttl (ms); streams.
-- Reply: {reason of a pause or '', entries dropped unread, what keeps a source from its due or ''}
--
-- Nothing that a reader has yet to read is dropped: past `maxlen` unread entries leasing pauses. Without a
-- reader the oldest go, counted.

if tonumber(redis.call('GET', K.fence) or '0') ~= A.fence then return {'', 0, ''} end
require_type(K.readers, 'hash')
redis.call('ZREMRANGEBYSCORE', K.slots, '-inf', '(' .. text(now))
redis.call('ZREMRANGEBYSCORE', K.active, '-inf', text(now - 600000000))
if redis.call('XLEN', K.dead) == 0 then redis.call('DEL', K.dead_sources) end -- whoever has deleted them

local function parts(id) -- of a stream id; one that is none has read nothing
  local time, sequence = id:match('^(%d+)-(%d+)$')
  if not time or #time > 16 or #sequence > 16 then return 0, 0 end
  return tonumber(time), tonumber(sequence)
end

local function before(a, b)
  local a_time, a_number = parts(a)
  local b_time, b_number = parts(b)
  if a_time ~= b_time then return a_time < b_time end
  return a_number < b_number
end

local read = {} -- stream -> {reader furthest behind, its id}
local fields = redis.call('HGETALL', K.readers)
for index = 1, #fields, 2 do
  local reader, stream = fields[index]:match('^(.*)\n(.*)$')
  local id = fields[index + 1]
  if stream and (not read[stream] or before(id, read[stream][2])) then read[stream] = {reader, id} end
end

local reason, dropped = '', 0
for _, stream in ipairs(A.streams) do
  if redis.call('XLEN', stream) > A.maxlen then
    local behind = read[stream]
    if not behind then
      dropped = dropped + redis.call('XTRIM', stream, 'MAXLEN', '~', A.maxlen, 'LIMIT', 0)
    else
      local time, sequence = parts(behind[2])
      redis.call('XTRIM', stream, 'MINID', text(time) .. '-' .. text(sequence))
      if redis.call('XLEN', stream) > A.maxlen then
        reason = stream .. ' holds more than CRAWL_STREAM_MAXLEN events that reader ' .. behind[1]
          .. ' has not read: run its scrapy events, or scrapy events --forget to give it up'
      end
    end
  end
end
add(K.totals, 'events_trimmed', dropped)
if reason ~= '' then
  redis.call('SET', K.paused, reason, 'PX', A.ttl)
elseif redis.call('PTTL', K.paused) > A.ttl then
  redis.call('DEL', K.paused) -- the clock was set back
end
local complaint = redis.pcall('GET', K.complaint)
return {reason, dropped, type(complaint) == 'string' and complaint or ''}
