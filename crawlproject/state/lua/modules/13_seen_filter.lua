-- The seen filter: what was ever enqueued, so that nothing is crawled twice.
--
-- A: seen_capacity (requests in a first generation).
--
-- A request is its digest, 8 bytes (frontier/codec.py), in generations of sets of integers. The first 32 bits choose the
-- set, 400 members each when a generation is full, the next 32 are the member: 4 bytes, as long as Redis keeps sets of up to
-- 512 integers (its set-max-intset-entries) in order. Members are Poisson distributed, so that none in a hundred million gets
-- there. A generation that is full is followed by one of four times its capacity.
--
-- K.seen_meta: `generations`, the capacity of each, and `count`, how many are in the last one, which only functions count.
local seen_filter = {}

local BUCKET, GROWTH = 400, 4

-- The capacities of the generations, oldest first, and the `count` of the last one
function state.seen_filter(ctx)
  local capacities, count = unpack(redis.call('HMGET', ctx.K.seen_meta, 'generations', 'count'))
  local generations = {count = tonumber(count) or 0}
  for capacity in (capacities or ''):gmatch('%d+') do generations[#generations + 1] = tonumber(capacity) end
  return generations
end

-- The key and the member that stand for a request in a generation.
function seen_filter.member_of(ctx, number, digest)
  local high, low = struct.unpack('>I4i4', digest)
  local sets = math.ceil(ctx.seen_filter[number] / BUCKET)
  return string.format('%s%d:%x', ctx.K.seen_of, number, high % sets), low
end

-- Whether one of the first `count` generations has a request.
function seen_filter.has(ctx, digest, count)
  for number = count or #ctx.seen_filter, 1, -1 do
    if redis.call('SISMEMBER', seen_filter.member_of(ctx, number, digest)) == 1 then return true end
  end
  return false
end

-- Notes a request; returns whether it is new.
function seen_filter.mark(ctx, digest)
  local generations = ctx.seen_filter
  local last = #generations
  if last == 0 or generations.count >= generations[last] then
    generations[last + 1] = math.max((generations[last] or 0) * GROWTH, ctx.A.seen_capacity)
    last, generations.count, generations.has_changed = last + 1, 0, true
  end
  if seen_filter.has(ctx, digest, last - 1) then return false end
  if redis.call('SADD', seen_filter.member_of(ctx, last, digest)) == 0 then return false end
  generations.count, generations.has_changed = generations.count + 1, true
  return true
end

-- Notes a request (the fields of NewRequest); returns whether it is to be stored: it is new, or comes `again`, `once` for each id.
function seen_filter.admits(ctx, request)
  local is_new = seen_filter.mark(ctx, request.digest)
  if request.again and request.once then return seen_filter.mark(ctx, request.once) end
  return is_new or request.again
end

-- Forgets stored requests: their seeds are no duplicates any more. Not those with bytes in them, which Redis cannot unpack.
function seen_filter.forget(ctx, entries)
  local generations = ctx.seen_filter
  for _, entry in ipairs(entries) do
    local digest = naming.digest_of(entry)
    for number = 1, digest and #generations or 0 do
      local is_gone = redis.call('SREM', seen_filter.member_of(ctx, number, digest)) == 1
      if is_gone and number == #generations then
        generations.count, generations.has_changed = math.max(generations.count - 1, 0), true
      end
    end
  end
end

at_end('seen_filter', function(ctx)
  local generations = ctx.seen_filter
  if not generations.has_changed then return end
  redis.call('HSET', ctx.K.seen_meta, 'generations', table.concat(generations, ' '), 'count', text(generations.count))
end)
