-- Calls: how a function of the library is called.

local CONTEXT = {__index = in_ctx}

-- Keys: the tag with one colon, and with two. Neither exists; they are in the slot of all keys of the call. A cluster that moves
-- the slot refuses a call for two such keys, and would carry out one for a single key, on half of the data.
-- Arguments: those of the call, its spider, its settings.
local function register(name, body, flags)
  local is_reading = flags and flags[1] == 'no-writes'
  redis.register_function({
    function_name = 'crawl_@DIGEST@_' .. name,
    callback = function(keys, args)
      local tag, spider = keys[1]:sub(1, -2), args[2]
      local ctx = setmetatable({tag = tag, spider = spider, K = keys_of(tag .. '\n' .. spider)}, CONTEXT)
      ctx.A = setmetatable(cmsgpack.unpack(args[1]), behind_arguments(args[3]))
      users_keys.check(keys[1], ctx.K)
      local went_well, reply = pcall(body, ctx, ctx.K, ctx.A)
      local problem = not is_reading and finish(ctx)
      if not went_well or problem then error(went_well and problem or reply, 0) end
      return reply
    end,
    flags = flags,
  })
end
