-- Rates: the limit of each source, and which sources are known.
--
-- A limit is written as a number, with `over-robots` after it where an operator has lifted the delay that a robots.txt
-- asks for. A source that is not known yet has the minimum, until the leader has set its own.
local rates = {}

-- The number of a limit, as it is written, and whether `over-robots` stands after it.
function rates.parts_of_limit(value)
  if not value or tonumber(value) then return value, false end
  local rate = value:match('^%s*(%S+)%s+over%-robots%s*$')
  return rate or value, rate and true or false
end

-- The limit that is written so; false: none.
function rates.parsed(ctx, value)
  local rate, is_over = rates.parts_of_limit(value)
  return {rate = tonumber(rate) or ctx.A.min_rate, is_over_robots = is_over, is_known = value ~= false}
end

reads('limits', function(ctx, sources)
  local found = read_all('HMGET', ctx.K.rates, sources)
  for index, value in ipairs(found) do found[index] = rates.parsed(ctx, value) end
  return found
end)

-- The rate limit in force.
function rates.of(ctx, source) return ctx.limits[source].rate end

-- Whether an operator has lifted the delay that a robots.txt asks of a source.
function rates.is_over_robots(ctx, source) return ctx.limits[source].is_over_robots end

-- A limit as it is written; two are the same where these are.
function rates.limit_text(rate, is_over) return string.format('%.17g', rate) .. (is_over and ' over-robots' or '') end

function rates.limit_of(ctx, source) return rates.limit_text(rates.of(ctx, source), rates.is_over_robots(ctx, source)) end

-- The limit that an operator has written; nil where it is none.
function rates.override_of(value)
  local written, is_over = rates.parts_of_limit(value)
  local rate = written and written:match('^[%d.eE+-]+$') and tonumber(written)
  return rate and (rate == 0 or rate >= 1e-6 and rate <= 1e5) and rates.limit_text(rate, is_over) or nil
end

-- source -> what an operator has written, false: nothing
reads('overrides', function(ctx, sources) return strings(ctx.K.override_rate_of, sources) end)

-- Looks at several sources, for the leader: a key of another type is an error. To MGET it is missing.
function rates.require_overrides(ctx, sources)
  look_up(ctx, 'overrides', sources)
  local others = {}
  for _, source in ipairs(sources) do
    if not ctx.overrides[source] then others[#others + 1] = source end
  end
  if none_has(ctx.K.override_rate_of, others) then return end
  for _, source in ipairs(others) do users_keys.require('string', ctx.K.override_rate_of .. source) end
end

-- Microseconds between two slots; a rate of 0 has none.
function rates.interval_of(rate)
  if rate <= 0 then return nil end
  return 1000000 / rate
end

-- What the row of a source in K.catalogue says: the rate by its size, the domains that it is bound to, with blanks around each,
-- and its options as JSON; '' where there is none, and nothing without a row.
function rates.parts_of_row(row)
  if row then return row:match('^([^\t]*)\t?([^\t]*)\t?(.*)$') end
end

-- Whether the catalogue does not name a source, and such are to be refused.
function rates.refused(ctx, source) return ctx.A.refuse_unknown and redis.call('HEXISTS', ctx.K.catalogue, source) == 0 end

-- Makes a source known that the catalogue does not name; returns whether it was not.
function rates.register(ctx, source)
  local limit = ctx.limits[source]
  if limit.is_known then return false end
  limit.is_known = true
  return redis.call('HSETNX', ctx.K.rates, source, string.format('%.17g', ctx.A.min_rate)) == 1
end
