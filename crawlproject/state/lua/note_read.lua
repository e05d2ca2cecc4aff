-- Notes how far a reader of the event streams has come, and keeps its turn where readers take turns.
-- needs: readers
-- types: string forwarder
--
-- A: positions (field of K.readers -> id of the last entry); turn (of the one who wants or has it; none: no
--    turns); ttl (ms that a turn outlasts its holder; 0: it is given back).
-- Reply: '', or who has the turn: then nothing was done.
--
-- It is readers that free memory, so this runs when there is none: each key that is written gives some back first,
-- and what all have read goes at once.

local short = out_of_memory()
if A.turn then
  local holder = redis.call('GET', K.forwarder)
  if holder and holder ~= A.turn then return holder end
  redis.call('DEL', K.forwarder)
  if A.ttl > 0 then redis.call('SET', K.forwarder, A.turn, 'PX', A.ttl) end
end
for field, id in pairs(A.positions) do
  redis.call('HDEL', K.readers, field)
  redis.call('HSET', K.readers, field, id)
end
if short then
  local positions = read_by_all()
  for _, stream in ipairs(EVENT_STREAMS) do drop_read(stream, positions) end
end
return ''
