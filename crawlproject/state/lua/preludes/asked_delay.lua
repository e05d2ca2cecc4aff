-- The delay that a source is asked to keep.
-- needs: numbers

local robots_delays = {} -- what this script knows

-- Looks at several sources at once: as a rule none of them is asked for one.
local function look_up_robots_delays(sources)
  if not none_has(K.robots_delays_of, sources) then return end
  for _, source in ipairs(sources) do robots_delays[source] = 0 end
end

-- The longest delay (s) that a robots.txt asks of a source; nil when that cannot be known.
local function robots_delay_of(source)
  if robots_delays[source] == nil then
    local longest = attempt('ZRANGE', K.robots_delays_of .. source, -1, -1, 'WITHSCORES')
    robots_delays[source] = longest and math.min(tonumber(longest[2] or '') or 0, 86400)
  end
  return robots_delays[source]
end
