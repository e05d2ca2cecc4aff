-- Calls: how a function of the library is called.

local CONTEXT = {__index = in_ctx}

-- What takes in more than it ends: out of memory Redis refuses these calls. The others end something, free memory or tell, and go
-- through.
local GROWING = {}
for name in ([[
  acquire begin_feed discover enqueue exclude feed hold_robots keep_robots lease look_robots note_text offer peek_seeds receive
  receive_seeds refill_commit renew revisit send_found send_seeds set_rates split_seeds take_seeds waiting
]]):gmatch('%S+') do GROWING[name] = true end

-- Keys: one that does not exist, of the slot that all keys of the call are in, and another one. A cluster that moves the slot
-- refuses a call for two such keys, and would carry out one for a single key, on half of the data.
-- Arguments: those of the call, its spider, its settings.
local function register(name, body)
  redis.register_function({
    function_name = 'crawl_@DIGEST@_' .. name,
    callback = function(keys, args)
      local ctx = setmetatable({tag = keys[1], spider = args[2], K = keys_of(keys[1] .. '\n' .. args[2])}, CONTEXT)
      ctx.A = setmetatable(cmsgpack.unpack(args[1]), behind_arguments(args[3]))
      users_keys.check(ctx.tag, ctx.K)
      return body(ctx, ctx.K, ctx.A)
    end,
    flags = GROWING[name] and {} or {'allow-oom'},
  })
end
