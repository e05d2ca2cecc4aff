-- The outbox of seeds: chunks on their way from the slot that users push to into that of the shard, on a Redis Cluster.
--
-- Each chunk has a number, above those of all chunks before it, and the shard takes it only if it is above the last one
-- that it took. So it takes each once, however often it is offered, and whoever offers it.

-- The number of a chunk; 0 for what is none.
local function chunk_number(value)
  local number = value and #value <= 16 and value:find('^%d+$') and tonumber(value) or 0
  return number < 9007199254740992 and number or 0 -- 2^53: up to there Lua counts
end
