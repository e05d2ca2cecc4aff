-- Returns the chunk of seeds that the shard is to take next; makes one of what users have pushed, if there is none.
--
-- A: count, size (seeds in a chunk, and bytes beyond which it takes no further one).
-- Reply: its number, then its seeds, the one to be read first at the head; nothing without seeds.
--
-- Chunks are on their way from the slot that users push to into that of the shard, on a Redis Cluster. Each has a number, above
-- those of all before it, and the shard takes it only if it is above the last one that it took. So it takes each once, however
-- often it is offered. A server that has lost its last second may give numbers again that the shard knows, where its clock is
-- behind: so a chunk names the server that has numbered it.
--
-- Whoever calls this and then moves the chunk waits until a replica has what it wrote: else the chunk might be with the
-- shard, and its seeds, after a fail-over, in the list again. So it writes in each case: a replica that has this has what
-- others wrote before, too.
register('send_seeds', function(ctx, K, A)
  local last = tonumber(redis.call('GET', K.seeds_sequence)) or 0
  local head = redis.call('LINDEX', K.seeds_out, 0)
  local chunk
  if head then
    chunk = cmsgpack.unpack(head)
  else
    local waiting = seed_list.peek(K.users_seeds, K.seeds_out .. ':next', A.count, A.size)
    if #waiting == 0 then return {} end
    -- Not below the clock: a sequence that was forgotten goes on above the former one.
    local now = redis.call('TIME')
    local server = ctx.server:sub(1, 8) -- new at each start
    chunk = {string.format('%.0f:%s', math.max(last + 1, now[1] * 1000000 + now[2]), server)}
    for _, seed in ipairs(waiting) do chunk[#chunk + 1] = seed end
    redis.call('RPUSH', K.seeds_out, cmsgpack.pack(chunk))
    redis.call('LTRIM', K.users_seeds, 0, -#chunk)
  end
  redis.call('SET', K.seeds_sequence, string.format('%.0f', math.max(last, tonumber(chunk[1]:match('^%d+')))))
  return chunk
end)
