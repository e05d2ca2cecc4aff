-- The audit trail: what has changed for a source, and who has changed it. The leader logs it within a second.
local audit = {}

function audit.iso_time(ctx)
  local seconds = math.floor(ctx.server_time / 1000000)
  local days = math.floor(seconds / 86400)
  -- Howard Hinnant, "chrono-compatible low-level date algorithms": civil_from_days
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local day, month = doy - math.floor((153 * mp + 2) / 5) + 1, mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  local rest = seconds % 86400
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03d+00:00', year, month, day, math.floor(rest / 3600),
    math.floor(rest / 60) % 60, rest % 60, math.floor(ctx.server_time / 1000) % 1000)
end

-- The worker that brings a change about, by a result or by looking.
function audit.worker_at_work(ctx)
  local worker = ctx.A.worker or redis.call('GET', ctx.K.leader)
  return worker and 'worker ' .. worker or 'a worker'
end

-- The operator who has ordered a change: by a command or the dashboard, which say so before; otherwise by a key.
function audit.operator_of(ctx, source, what)
  local key = ctx.K.ordered_by_of .. source
  local by = redis.call('HGET', key, what)
  if by then redis.call('HDEL', key, what) end
  return 'operator, ' .. (by and by:gsub('[%c\128-\255]', '?') or 'by key')
end

-- The name of a source for JSON: one that only an operator has spelled may not be UTF-8.
function audit.shown_name(ctx, source)
  return redis.call('HEXISTS', ctx.K.rates, source) == 1 and source or (source:gsub('[\128-\255]', '?'))
end

-- Adds an event to the trail, and to `stream` if it has one.
function audit.note(ctx, name, event, stream)
  event.event, event.time = name, audit.iso_time(ctx)
  local parts = {}
  for _, key in ipairs({'event', 'time', 'type', 'source', 'rate', 'over_robots', 'msg', 'reason', 'by'}) do
    if event[key] then parts[#parts + 1] = '"' .. key .. '":' .. cjson.encode(event[key]):gsub('\\/', '/') end
  end
  local line = '{' .. table.concat(parts, ',') .. '}'
  if stream then redis.call('XADD', stream, '*', 'event', line) end
  redis.call('XADD', ctx.K.audit, 'MAXLEN', '~', 10000, '*', 'event', line)
end

-- Notes that another rate is in force than before, because an operator has set one ('override'), perhaps over the delay of
-- robots.txt, or taken it out again ('size').
function audit.note_override(ctx, source, rate, kind, is_over_robots)
  local name, by = audit.shown_name(ctx, source), audit.operator_of(ctx, source, 'rate')
  local why = kind == 'size' and 'by size again' or is_over_robots and 'by override, over robots.txt' or 'by override'
  local msg = string.format('%s: %g requests a second %s', name, rate, why)
  audit.note(ctx, 'rate_overridden', {source = name, type = kind, rate = rate, over_robots = is_over_robots, msg = msg, by = by})
end
