-- Send slots: the next free one of each source.
--
-- Slots are written once, at the end of a script, by save_slots().
local slots = {}

-- what this script knows; what is to be written
function state.slots() return {} end
function state.changed_slots() return {} end

-- The next free slot as it was last set, or false.
function slots.slot_of(ctx, source)
  if ctx.slots[source] == nil then ctx.slots[source] = tonumber(redis.call('ZSCORE', ctx.K.slots, source)) or false end
  return ctx.slots[source]
end

function slots.set_slot(ctx, source, slot)
  ctx.slots[source] = slot
  ctx.changed_slots[source] = slot
end

function slots.save_slots(ctx)
  local values = {}
  for source, slot in pairs(ctx.changed_slots) do values[#values + 1], values[#values + 2] = text(slot), source end
  for first = 1, #values, 2000 do
    redis.call('ZADD', ctx.K.slots, unpack(values, first, math.min(first + 1999, #values)))
  end
end

-- The next slot that can be given out.
function slots.next_slot(ctx, source) return math.max(slots.slot_of(ctx, source) or 0, ctx.now) end
