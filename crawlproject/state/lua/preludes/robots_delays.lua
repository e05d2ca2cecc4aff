-- The delays that the robots.txt files of a source's hosts ask for. The longest binds the whole source.
-- needs: due
--
-- A host's delay counts no more when nobody has looked at its robots.txt for ten minutes and that delay. Whoever
-- visits the host again looks first (a worker remembers it for 90 s), and the delay counts again before the request
-- goes out.

local UNASKED_US = 600000000

local function unasked(source)
  local found = {}
  local longest = redis.call('ZRANGE', K.robots_delays_of .. source, -10, -1, 'WITHSCORES')
  for index = 1, #longest, 2 do
    local asked = attempt('HGET', K.robots_of .. longest[index], 'asked')
    local delay = bounded_delay(longest[index + 1]) * 1000000
    if (number(asked or '', 0) or 0) < now - UNASKED_US - delay then found[#found + 1] = longest[index] end
  end
  return found
end

-- Notes which delay (s) an origin's robots.txt asks of a source; the slot after the last one used is counted anew.
-- Returns 1 when the source is visited less often than before, else 0.
local function set_delay(source, origin, delay)
  local key = K.robots_delays_of .. source
  require_type('zset', key)
  redis.call('PEXPIRE', key, 2 * 86400 * 1000)
  local others = unasked(source)
  if (tonumber(redis.call('ZSCORE', key, origin) or '') or 0) == delay and #others == 0 then return 0 end
  local slot, before = slot_of(source), interval_of(effective_rate(source))
  for _, other in ipairs(others) do redis.call('ZREM', key, other) end
  if delay > 0 then
    redis.call('ZADD', key, string.format('%.17g', delay), origin)
  else
    redis.call('ZREM', key, origin)
  end
  robots_delays[source] = nil
  local after = interval_of(effective_rate(source))
  if slot and before and after then set_slot(source, slot - before + after) end
  schedule(source)
  save_due()
  return before and after and after > before and 1 or 0
end
