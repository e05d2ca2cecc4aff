-- Numbers, as they are written, and statistics.

-- `%d` takes a tenth of the time of `%.0f`, but is for what fits into 64 bits.
local function text(number)
  if number > -9e15 and number < 9e15 then return string.format('%d', math.floor(number + 0.5)) end
  return string.format('%.0f', number)
end

-- Whether none of several sources has a key that begins so; at most a few thousand sources.
local function none_has(prefix, sources)
  local keys = {}
  for index, source in ipairs(sources) do keys[index] = prefix .. source end
  return #keys > 0 and redis.call('EXISTS', unpack(keys)) == 0
end

-- Reads any number of fields or members of a key, by a command that takes many.
local function read_all(command, key, names)
  local found = {}
  for first = 1, #names, 1000 do
    local part = redis.call(command, key, unpack(names, first, math.min(first + 999, #names)))
    for index = 1, #part do found[first + index - 1] = part[index] end
  end
  return found
end

-- Writes any number of values to a key, which come in pairs where the command takes pairs.
local function write_all(command, key, values)
  for first = 1, #values, 2000 do redis.call(command, key, unpack(values, first, math.min(first + 1999, #values))) end
end

local statistics = {}

-- Adds to a statistic.
function statistics.add(key, field, count)
  if count ~= 0 then redis.call('HINCRBY', key, field, text(count)) end
end

-- The same for several fields at once.
function statistics.add_all(key, counts)
  local fields, sums = {}, {}
  for field in pairs(counts) do fields[#fields + 1] = field end
  if #fields <= 1 then return fields[1] and statistics.add(key, fields[1], counts[fields[1]]) end
  for index, before in ipairs(redis.call('HMGET', key, unpack(fields))) do
    local field = fields[index]
    sums[2 * index - 1], sums[2 * index] = field, text((before or 0) + counts[field])
  end
  redis.call('HSET', key, unpack(sums))
end
