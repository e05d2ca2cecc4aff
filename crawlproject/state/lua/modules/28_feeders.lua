-- Who feeds seeds from a file or from Kafka now: each says so every few seconds.
local feeders = {}

local SILENT_US = 10000000 -- after which a process no longer feeds, as far as anybody knows

-- The moment of a report, and the seeds that were left then, nil where nobody knows; nothing for one that is too old.
function feeders.report_in(ctx, value)
  local at, left = value:match('^(%d+):(%d*)$')
  if math.abs(ctx.now - at) > SILENT_US then return nil end
  return at, tonumber(left)
end
