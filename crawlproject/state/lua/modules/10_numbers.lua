-- Numbers, as they are written and read.

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
