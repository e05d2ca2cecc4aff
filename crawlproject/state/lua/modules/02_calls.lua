-- Calls: how a function of the library is called.

local CONTEXT = {__index = in_ctx}

-- Keys: one that does not exist, of the slot that all keys of the call are in, and another one. A cluster that moves the slot
-- refuses a call for two such keys, and would carry out one for a single key, on half of the data.
-- Arguments: those of the call, its spider, its settings.
local function register(name, body, flags)
  redis.register_function({
    function_name = 'crawl_@DIGEST@_' .. name,
    callback = function(keys, args)
      local ctx = setmetatable({tag = keys[1], spider = args[2], K = keys_of(keys[1] .. '\n' .. args[2])}, CONTEXT)
      ctx.A = setmetatable(cmsgpack.unpack(args[1]), behind_arguments(args[3]))
      users_keys.check(ctx.tag, ctx.K)
      return body(ctx, ctx.K, ctx.A)
    end,
    flags = flags,
  })
end
