-- Rates: the limit of each source, and which sources are known.
-- needs: numbers
-- types: hash rates limits, set sources
--
-- A limit is written as a number, with `over-robots` after it where an operator has lifted the delay that a robots.txt
-- asks for. A source that is not known yet has the minimum, until the leader has set its own.

local rates, over_robots, registered = {}, {}, {}

-- The number of a limit, as it is written, and whether `over-robots` stands after it.
local function parts_of_limit(value)
  local rate = value and value:match('^%s*(%S+)%s+over%-robots%s*$')
  return rate or value, rate and true or false
end

local function note_rate(source, value)
  local rate, is_over = number(value, 0), false
  if not rate then
    value, is_over = parts_of_limit(value)
    rate = number(value, 0)
  end
  local is_valid = rate and rate <= 100000
  registered[source] = value ~= false
  rates[source], over_robots[source] = is_valid and rate or A.min_rate, is_valid and is_over
end

-- The rate limit in force.
local function rate_of(source)
  if not rates[source] then note_rate(source, redis.call('HGET', K.rates, source)) end
  return rates[source]
end

-- Whether an operator has lifted the delay that a robots.txt asks of a source.
local function is_over_robots(source) return rate_of(source) and over_robots[source] end

-- A limit as it is written; two are the same where these are.
local function limit_text(rate, is_over) return string.format('%.17g', rate) .. (is_over and ' over-robots' or '') end

local function limit_of(source) return limit_text(rate_of(source), is_over_robots(source)) end

-- The limit that an operator has written; nil where it is none.
local function override_of(value)
  local written, is_over = parts_of_limit(value)
  local rate = written and written:match('^[%d.eE+-]+$') and number(written, 0)
  return rate and (rate == 0 or rate >= 1e-6 and rate <= 1e5) and limit_text(rate, is_over) or nil
end

local overrides = {} -- source -> what an operator has written, false: nothing; where that is known

-- Looks at several sources at once.
local function look_up_overrides(sources)
  for first = 1, #sources, 1000 do
    local last, keys = math.min(first + 999, #sources), {}
    for index = first, last do keys[#keys + 1] = K.override_rate_of .. sources[index] end
    for index, value in ipairs(redis.call('MGET', unpack(keys))) do overrides[sources[first + index - 1]] = value end
  end
end

-- Microseconds between two slots; a rate of 0 has none.
local function interval_of(rate)
  if rate <= 0 then return nil end
  return 1000000 / rate
end

-- Whether the catalogue does not name a source, and such are to be refused.
local function refused(source) return A.refuse_unknown and redis.call('HEXISTS', K.limits, source) == 0 end

-- Makes a source known that the catalogue does not name.
local function register_source(source)
  if registered[source] then return end
  if redis.call('HSETNX', K.rates, source, string.format('%.17g', A.min_rate)) == 1 then
    redis.call('SADD', K.sources, source)
  end
  registered[source] = true
end
