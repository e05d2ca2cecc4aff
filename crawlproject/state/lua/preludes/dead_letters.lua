-- Dead letters, and statistics.
-- needs: numbers
-- types: stream dead, hash dead_sources

-- Adds to a statistic; junk found there is left alone.
local function add(key, field, count)
  if count ~= 0 then attempt('HINCRBY', key, field, text(count)) end
end

-- `what` is 'entry' (a stored request) or 'seed' (a line of the seed list, as it came).
local function add_dead_letter(what, body, source, reason, deliveries)
  redis.call('XADD', K.dead, '*', what, body, 'source', source or '', 'reason', reason, 'deliveries', deliveries)
  if source and source ~= '' then add(K.dead_sources, source, 1) end
end

-- Returns whether it was there.
local function remove_dead_letter(id, source)
  if redis.call('XDEL', K.dead, id) == 0 then return false end
  if source and source ~= '' then
    add(K.dead_sources, source, -1)
    if (number(redis.call('HGET', K.dead_sources, source)) or 1) <= 0 then redis.call('HDEL', K.dead_sources, source) end
  end
  return true
end
