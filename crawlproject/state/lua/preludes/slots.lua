-- Send slots: the next free one of each source.
-- needs: clock
-- types: zset slots
--
-- Slots are written once, at the end of a script, by save_slots().

local slots, changed_slots = {}, {} -- what this script knows; what is to be written

-- The next free slot as it was last set, or false.
local function slot_of(source)
  if slots[source] == nil then slots[source] = number(redis.call('ZSCORE', K.slots, source)) or false end
  return slots[source]
end

local function set_slot(source, slot)
  slots[source] = slot
  changed_slots[source] = slot
end

local function save_slots()
  local values = {}
  for source, slot in pairs(changed_slots) do values[#values + 1], values[#values + 2] = text(slot), source end
  for first = 1, #values, 2000 do
    redis.call('ZADD', K.slots, unpack(values, first, math.min(first + 1999, #values)))
  end
end

-- The next slot that can be given out.
local function next_slot(source) return math.max(slot_of(source) or 0, now) end
