-- Rates: the limit of each source, and which sources are known.
-- needs: numbers
-- types: hash rates limits, set sources
--
-- A source that is not known yet has the minimum, until the leader has set its own.

local rates, registered = {}, {}

local function note_rate(source, value)
  local rate = number(value, 0)
  registered[source] = value ~= false
  rates[source] = rate and rate <= 100000 and rate or A.min_rate
end

-- The rate limit in force.
local function rate_of(source)
  if not rates[source] then note_rate(source, redis.call('HGET', K.rates, source)) end
  return rates[source]
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
