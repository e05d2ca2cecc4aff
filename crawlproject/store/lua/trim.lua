-- Keeps the event streams and the slots within bounds.
--
-- A: fence; maxlen; ttl (ms); streams.
-- Reply: {reason of a pause or '', entries dropped unread}
--
-- Nothing that a reader has yet to read is dropped: past `maxlen` unread entries leasing pauses. Without a
-- reader the oldest go, counted.

if tonumber(redis.call('GET', K.fence) or '0') ~= A.fence then return {'', 0} end
redis.call('ZREMRANGEBYSCORE', K.slots, '-inf', '(' .. text(now))

local function before(a, b) -- of two stream ids
  local a_time, a_number = a:match('^(%d+)-(%d+)$')
  local b_time, b_number = b:match('^(%d+)-(%d+)$')
  if tonumber(a_time) ~= tonumber(b_time) then return tonumber(a_time) < tonumber(b_time) end
  return tonumber(a_number) < tonumber(b_number)
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
      redis.call('XTRIM', stream, 'MINID', behind[2])
      if redis.call('XLEN', stream) > A.maxlen then
        reason = stream .. ' holds more than CRAWL_STREAM_MAXLEN events that reader ' .. behind[1]
          .. ' has not read: run its scrapy events, or scrapy events --forget to give it up'
      end
    end
  end
end
if dropped > 0 then redis.call('HINCRBY', K.totals, 'events_trimmed', dropped) end
if reason ~= '' then redis.call('SET', K.paused, reason, 'PX', A.ttl) end
return {reason, dropped}
