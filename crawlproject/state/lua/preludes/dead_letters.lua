-- Dead letters, and statistics.
-- needs: numbers
-- types: stream dead, hash dead_sources

-- Adds to a statistic; junk found there is left alone.
local function add(key, field, count)
  if count ~= 0 then attempt('HINCRBY', key, field, text(count)) end
end

-- The same for several fields at once.
local function add_all(key, counts)
  local fields, changed = {}, {}
  for field in pairs(counts) do fields[#fields + 1] = field end
  for index, value in ipairs(attempt('HMGET', key, unpack(fields)) or {}) do
    local before, field = number(value or '0'), fields[index]
    if before and before % 1 == 0 then
      changed[#changed + 1], changed[#changed + 2] = field, text(before + counts[field])
    else
      report_data_fault(wrong(key))
    end
  end
  if #changed > 0 then redis.call('HSET', key, unpack(changed)) end
end

-- `what` is 'entry' (a stored request) or 'seed' (a line of the seed list, as it came); `image` is what is known of
-- its image, JSON or nil.
local function add_dead_letter(what, body, source, reason, deliveries, image)
  local fields = {what, body, 'source', source or '', 'reason', reason, 'deliveries', deliveries}
  if image then fields[#fields + 1], fields[#fields + 2] = 'image', image end
  redis.call('XADD', K.dead, '*', unpack(fields))
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
