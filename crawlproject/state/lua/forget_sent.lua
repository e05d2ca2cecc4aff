-- Takes what a shard has out of the outbox.
-- needs: shards
-- types: counter outstanding
--
-- A: to (the number of the shard); number (of the last one that it has); shards.
-- Reply: how many there were.

local key, count, requests = K.outbox_of .. A.to, 0, 0
require_type('list', key)
while true do
  local packed = redis.call('LINDEX', key, 0)
  local item = packed and item_in(packed)
  if not item or item.number > A.number then break end
  redis.call('LPOP', key)
  count = count + 1
  if item.kind == 'request' then requests = requests + 1 end
end
if requests > 0 then redis.call('DECRBY', K.outstanding, requests) end
return count
