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

-- The strings of several names, in keys that begin so.
local function strings(prefix, names)
  local keys, found = {}, {}
  for index, name in ipairs(names) do keys[index] = prefix .. name end
  for first = 1, #keys, 1000 do
    for _, value in ipairs(redis.call('MGET', unpack(keys, first, math.min(first + 999, #keys)))) do found[#found + 1] = value end
  end
  return found
end

-- Which of several names are members of a set.
local function members_of(key, names)
  local found = read_all('SMISMEMBER', key, names)
  for index, member in ipairs(found) do found[index] = member == 1 end
  return found
end

-- The scores of several names in a sorted set, false for those that it has not got.
local function scores_in(key, names)
  local found = read_all('ZMSCORE', key, names)
  for index, score in ipairs(found) do found[index] = tonumber(score) or false end
  return found
end

-- Writes any number of values to a key, which come in pairs where the command takes pairs.
local function write_all(command, key, values)
  for first = 1, #values, 2000 do redis.call(command, key, unpack(values, first, math.min(first + 1999, #values))) end
end

-- Writes scores, name -> score, to a sorted set; returns how many.
local function write_scores(key, scores)
  local values = {}
  for name, score in pairs(scores) do values[#values + 1], values[#values + 2] = text(score), name end
  write_all('ZADD', key, values)
  return #values / 2
end

local statistics = {}

-- What is counted of a source, by name.
function statistics.counts_of(ctx, source)
  local packed = redis.call('HGET', ctx.K.counts, source)
  return packed and cmsgpack.unpack(packed) or {}
end

-- What a call has counted: source -> name -> number
function state.counts() return {} end

-- Notes that something was counted of a source. What is counted of '' is in the totals alone.
function statistics.note(ctx, source, name, number)
  if number == 0 then return end
  local of_source = ctx.counts[source] or {}
  ctx.counts[source], of_source[name] = of_source, (of_source[name] or 0) + number
end

at_end('counts', function(ctx)
  local sources, values, totals, names, sums = {}, {}, {}, {}, {}
  for source, numbers in pairs(ctx.counts) do
    for name, number in pairs(numbers) do totals[name] = (totals[name] or 0) + number end
    if source ~= '' then sources[#sources + 1] = source end
  end
  for index, packed in ipairs(read_all('HMGET', ctx.K.counts, sources)) do
    local source, counts = sources[index], packed and cmsgpack.unpack(packed) or {}
    for name, number in pairs(ctx.counts[source]) do counts[name] = (counts[name] or 0) + number end
    values[2 * index - 1], values[2 * index] = source, cmsgpack.pack(counts)
  end
  write_all('HSET', ctx.K.counts, values)
  for name in pairs(totals) do names[#names + 1] = name end
  for index, before in ipairs(read_all('HMGET', ctx.K.totals, names)) do
    sums[2 * index - 1], sums[2 * index] = names[index], (before or 0) + totals[names[index]]
  end
  write_all('HSET', ctx.K.totals, sums)
end)
