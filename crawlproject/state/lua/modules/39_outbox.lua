-- The outbox of seeds: chunks on their way from the slot that users push to into that of the shard, on a Redis Cluster.
--
-- Each chunk has a number, above those of all chunks before it, and the shard takes it only if it is above the last one
-- that it took. So it takes each once, however often it is offered, and whoever offers it. A server that has lost its last
-- second may give numbers again that the shard knows, where its clock is behind: so a chunk names the server that has numbered
-- it, and each one's numbers are taken for themselves, as in shards.lua.
local outbox = {}

-- The number of a chunk; and what stands behind it: a colon and the server.
function outbox.chunk_number(value)
  local digits, server = value:match('^(%d+)(:?%w*)$')
  return tonumber(digits), server
end
