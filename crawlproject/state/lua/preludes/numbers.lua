-- Numbers, as they are written and read.

-- `%d` takes a tenth of the time of `%.0f`, but is for what fits into 64 bits.
local function text(number)
  if number > -9e15 and number < 9e15 then return string.format('%d', math.floor(number + 0.5)) end
  return string.format('%.0f', number)
end

-- A number that crawlproject may have written, or nil.
local function number(value, low)
  local found = tonumber(value or '')
  if found and found == found and found >= (low or -9e15) and found <= 9e15 then return found end
  return nil
end
