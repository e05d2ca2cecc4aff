-- The delay that a source is asked to keep.
-- needs: rates

local LONGEST_DELAY_S = 86400

local robots_delays = {} -- what this script knows

-- A delay (s) as it is stored, within bounds.
local function bounded_delay(stored) return math.min(tonumber(stored or '') or 0, LONGEST_DELAY_S) end

-- Looks at several sources at once: as a rule none of them is asked for one.
local function look_up_robots_delays(sources)
  if not none_has(K.robots_delays_of, sources) then return end
  for _, source in ipairs(sources) do robots_delays[source] = 0 end
end

-- The longest delay (s) that a robots.txt asks of a source; nil when that cannot be known.
local function robots_delay_of(source)
  if robots_delays[source] == nil then
    local longest = attempt('ZRANGE', K.robots_delays_of .. source, -1, -1, 'WITHSCORES')
    robots_delays[source] = longest and bounded_delay(longest[2])
  end
  return robots_delays[source]
end

-- The delay (s) that it has to keep: none where its operator has lifted it; nil when that cannot be known.
local function binding_delay_of(source) return is_over_robots(source) and 0 or robots_delay_of(source) end
