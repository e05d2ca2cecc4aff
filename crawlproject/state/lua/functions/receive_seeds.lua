-- Puts the seeds of a chunk into the seed list, unless it was taken before.
--
-- A: outbox (its key); number, seeds (of the chunk, as send_seeds.lua returns them).
-- Reply: the number of the last chunk that was taken of those that the same server has numbered, written like this one.
--
-- Whoever calls this and then lets the outbox forget the chunk waits until a replica has what it wrote; so it writes in
-- each case.
register('receive_seeds', function(ctx, K, A)
  local number, server = A.number:match('^(%d+)(.*)$') -- each server's numbers are taken for themselves
  number = tonumber(number)
  local field = A.outbox .. server
  local last = tonumber(redis.call('HGET', K.seeds_received, field)) or 0
  if number > last then
    redis.call('LPUSH', K.seeds, unpack(A.seeds))
    last = number
  end
  local digits = string.format('%.0f', last)
  redis.call('HSET', K.seeds_received, field, digits)
  return digits .. server
end)
