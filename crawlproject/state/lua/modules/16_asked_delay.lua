-- The delay that a source is asked to keep.
local asked_delay = {}

local LONGEST_DELAY_S = 86400

-- what this script knows
function state.robots_delays() return {} end

-- A delay (s) as it is stored, within bounds.
function asked_delay.bounded_delay(stored) return math.min(tonumber(stored) or 0, LONGEST_DELAY_S) end

-- Looks at several sources at once: as a rule none of them is asked for one.
function asked_delay.look_up_robots_delays(ctx, sources)
  if not none_has(ctx.K.robots_delays_of, sources) then return end
  for _, source in ipairs(sources) do ctx.robots_delays[source] = 0 end
end

-- The longest delay (s) that a robots.txt asks of a source.
function asked_delay.robots_delay_of(ctx, source)
  if ctx.robots_delays[source] == nil then
    local longest = redis.call('ZRANGE', ctx.K.robots_delays_of .. source, -1, -1, 'WITHSCORES')
    ctx.robots_delays[source] = asked_delay.bounded_delay(longest[2])
  end
  return ctx.robots_delays[source]
end

-- The delay (s) that it has to keep: none where its operator has lifted it.
function asked_delay.binding_delay_of(ctx, source) return rates.is_over_robots(ctx, source) and 0 or asked_delay.robots_delay_of(ctx, source) end
