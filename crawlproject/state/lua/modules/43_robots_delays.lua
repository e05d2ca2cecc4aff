-- The delays that the robots.txt files of a source's hosts ask for. The longest binds the whole source.
--
-- A host's delay counts no more when nobody has looked at its robots.txt for ten minutes and that delay. Whoever
-- visits the host again looks first (a worker remembers it for 90 s), and the delay counts again before the request
-- goes out.
local robots_delays = {}

local UNASKED_US = 600000000

function robots_delays.unasked(ctx, source)
  local found = {}
  local longest = redis.call('ZRANGE', ctx.K.robots_delays_of .. source, -10, -1, 'WITHSCORES')
  for index = 1, #longest, 2 do
    local asked = redis.call('HGET', ctx.K.robots_of .. longest[index], 'asked')
    local delay = asked_delay.bounded_delay(longest[index + 1]) * 1000000
    if (tonumber(asked) or 0) < ctx.now - UNASKED_US - delay then found[#found + 1] = longest[index] end
  end
  return found
end

-- Notes which delay (s) an origin's robots.txt asks of a source; the slot after the last one used is counted anew.
-- Returns 1 when the source is visited less often than before, else 0.
function robots_delays.set_delay(ctx, source, origin, delay)
  local key = ctx.K.robots_delays_of .. source
  redis.call('PEXPIRE', key, 2 * 86400 * 1000)
  local others = robots_delays.unasked(ctx, source)
  if (tonumber(redis.call('ZSCORE', key, origin)) or 0) == delay and #others == 0 then return 0 end
  local slot, before = slots.slot_of(ctx, source), rates.interval_of(due_index.effective_rate(ctx, source))
  for _, other in ipairs(others) do redis.call('ZREM', key, other) end
  if delay > 0 then
    redis.call('ZADD', key, string.format('%.17g', delay), origin)
  else
    redis.call('ZREM', key, origin)
  end
  ctx.robots_delays[source] = nil
  local after = rates.interval_of(due_index.effective_rate(ctx, source))
  if slot and before and after then slots.set_slot(ctx, source, slot - before + after) end
  due_index.schedule(ctx, source)
  due_index.save_due(ctx)
  return before and after and after > before and 1 or 0
end
