-- Puts the seeds of a chunk into the seed list, unless it was taken before.
-- needs: outbox
-- types: list seeds, hash seeds_received
--
-- A: outbox (its key); number, seeds (of the chunk, as send_seeds.lua returns them).
-- Reply: the number of the last chunk that was taken.
--
-- Whoever calls this and then lets the outbox forget the chunk waits until a replica has what it wrote; so it writes in
-- each case.

local last = string.format('%.0f', chunk_number(redis.call('HGET', K.seeds_received, A.outbox) or nil))
if chunk_number(A.number) > tonumber(last) then
  redis.call('LPUSH', K.seeds, unpack(A.seeds))
  last = A.number
end
redis.call('HSET', K.seeds_received, A.outbox, last)
return last
