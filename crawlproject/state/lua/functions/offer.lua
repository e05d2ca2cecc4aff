-- Returns what is next on its way to a shard.
--
-- A: to (the number of the shard); count, size (how many, and bytes beyond which there is no further one); shards.
-- Reply: all, packed as they are.
--
-- Whoever calls this and then brings it there waits until a replica has what it wrote: else it might have arrived, and, after
-- a fail-over, be sent again under another number. So it writes in each case: a replica that has this has what others wrote
-- before, too.
register('offer', function(ctx, K, A)
  local STAYS_US = 5000000 -- as often as the shards look for a newer catalogue

  local key = K.outbox_of .. A.to
  -- Whether it is something that this shard has sent itself, less than STAYS_US ago: its number is when.
  local function stays(item) return A.to == A.shard and item.hops > MOST_WAYS and math.abs(ctx.now - item.number) < STAYS_US end

  local reply, size, last = {}, 0, 0
  while #reply < A.count and size < A.size do
    local packed = redis.call('LINDEX', key, #reply) -- one by one: each may have a megabyte
    local item = packed and shards.item_in(packed)
    if not item or stays(item) then break end
    reply[#reply + 1], size, last = packed, size + #packed, item.number
  end
  if last == 0 then return {} end
  redis.call('SET', K.outbox_sequence, text(math.max(ctx.outbox.last, last)))
  return reply
end)
