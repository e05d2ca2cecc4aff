-- Numbers, as they are written and read.

local function text(number) return string.format('%.0f', number) end

-- A number that crawlproject may have written, or nil.
local function number(value, low)
  local found = tonumber(value or '')
  if found and found == found and found >= (low or -9e15) and found <= 9e15 then return found end
  return nil
end
