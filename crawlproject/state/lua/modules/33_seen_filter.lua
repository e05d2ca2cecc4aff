-- The seen filter: what was ever enqueued, so that nothing is crawled twice.
--
-- A: seen_capacity (requests in a first generation); seen_rate (false positives among the links found on pages; 0: none).
--
-- A request is its digest (32 bytes, frontier/dupefilter.py), from which each layout takes what it needs:
--    exact: generations of sets of integers. The first 32 bits choose the set, 400 members each when a generation is
--       full, the next 32 are the member: 4 bytes, as long as Redis keeps sets of up to 512 integers (its
--       set-max-intset-entries) in order. Members are Poisson distributed, so that none in a hundred million gets there.
--    bloom: generations of blocked Bloom filters: blocks of 64 bytes in 64 strings. For links alone: a false positive is a
--       link that is never crawled, and an operator's seed must not be one.
-- A generation that is full is followed by one of four times its capacity; of Bloom filters with half its rate, so that
-- all together keep to seen_rate. K.seen_meta holds what is needed to find anything again: `exact`, the capacity
-- of each generation; `bloom`, the capacity, blocks in a string, probes and rate of each; and how many are in
-- the last one of each, which only functions count, and so nobody else at the same time.
local seen_filter = {}

local BUCKET, GROWTH = 400, 4
local PARTITIONS, BLOCK_BITS, MOST_PROBES, MOST_BLOCKS = 64, 512, 12, 2 ^ 23 -- a string of Redis has at most 512 MB

-- {exact, bloom}, each its generations, oldest first, and `count`, of the last one

-- The generation that a word in K.seen_meta stands for, at its place, counted from 0.
function seen_filter.generation_of(ctx, kind, word, place)
  local capacity, blocks, probes = word:match(kind == 'exact' and '^(%d+)$' or '^(%d+)/(%d+)/(%d+)/')
  capacity, blocks, probes = tonumber(capacity), tonumber(blocks), tonumber(probes)
  if kind == 'exact' then
    local first = ctx.K.seen_of .. 'e' .. place .. ':'
    return {word = word, capacity = capacity, first = first, buckets = math.ceil(capacity / BUCKET)}
  end
  return {word = word, capacity = capacity, first = ctx.K.seen_bloom_of .. place .. ':', blocks = blocks, probes = probes}
end

function seen_filter.generations_in(ctx, kind, words)
  local found = {}
  for word in words:gmatch('%S+') do found[#found + 1] = seen_filter.generation_of(ctx, kind, word, #found) end
  return found
end

-- How what was seen is kept.
function state.seen_filter(ctx)
  local kept = redis.call('HMGET', ctx.K.seen_meta, 'exact', 'exact_count', 'bloom', 'bloom_count')
  local exact = seen_filter.generations_in(ctx, 'exact', kept[1] or '')
  local bloom = seen_filter.generations_in(ctx, 'bloom', kept[3] or '')
  exact.count, bloom.count = tonumber(kept[2]) or 0, tonumber(kept[4]) or 0
  return {exact = exact, bloom = bloom}
end

-- The share of false positives in blocks that hold `mean` on average.
function seen_filter.false_positives(mean, probes)
  local share, sum = math.exp(-mean), 0
  for held = 1, math.ceil(mean + 10 * math.sqrt(mean) + 10) do
    share = share * mean / held
    sum = sum + share * (1 - (1 - 1 / BLOCK_BITS) ^ (probes * held)) ^ probes
  end
  return sum
end

-- How many a block may hold on average at this rate of false positives, and the number of probes: the least that needs
-- no more than a twentieth more memory than the best. Takes a millisecond or two, once for each generation.
function seen_filter.block_for(rate)
  local function probes_for(mean)
    for probes = 1, MOST_PROBES do
      if seen_filter.false_positives(mean, probes) <= rate then return probes end
    end
  end
  local low, high = 1, 128
  for _ = 1, 9 do
    local mean = (low + high) / 2
    if probes_for(mean) then low = mean else high = mean end
  end
  return low / 1.05, probes_for(low / 1.05)
end

-- Begins a generation: of `exact` or of `bloom`.
function seen_filter.add_generation(ctx, kind)
  local generations = ctx.seen_filter[kind]
  local last, place = generations[#generations], #generations
  local capacity = math.max(last and last.capacity * GROWTH or 0, ctx.A.seen_capacity)
  if kind == 'exact' then
    generations[place + 1] = seen_filter.generation_of(ctx, 'exact', text(capacity), place)
  else
    local rate = ctx.A.seen_rate / 2 ^ (place + 1)
    local mean, probes = seen_filter.block_for(rate)
    local blocks = math.min(math.ceil(capacity / mean / PARTITIONS), MOST_BLOCKS)
    capacity = math.min(capacity, math.floor(blocks * PARTITIONS * mean))
    local word = string.format('%.0f/%d/%d/%.4g', capacity, blocks, probes, rate)
    generations[place + 1] = seen_filter.generation_of(ctx, 'bloom', word, place)
  end
  generations.count = 0
  local words = {}
  for index, generation in ipairs(generations) do words[index] = generation.word end
  redis.call('HSET', ctx.K.seen_meta, kind, table.concat(words, ' '), kind .. '_count', 0)
end

-- The key and the member that stand for a request.
function seen_filter.exact_place(generation, digest)
  local high, low = struct.unpack('>I4i4', digest)
  return generation.first .. string.format('%x', high % generation.buckets), low
end

-- Whether a request is new to a Bloom filter, 1 or 0, in which it is then noted if this `adds`.
function seen_filter.is_new_to_bloom(ctx, generation, digest, adds)
  local high, low = struct.unpack('>I4I2', digest)
  local block_number = high * 65536 + low
  local key = generation.first .. block_number % PARTITIONS
  local start = math.floor(block_number / PARTITIONS) % generation.blocks * 64
  local block = redis.call('GETRANGE', key, start, start + 63)
  local is_short, bytes = #block < 64, nil
  if is_short then block = block .. string.rep('\0', 64 - #block) end
  for probe = 1, generation.probes do
    local upper, lower = digest:byte(7 + 2 * probe, 8 + 2 * probe)
    local rest = lower % 8
    local at, mask = upper % 2 * 32 + (lower - rest) / 8 + 1, 2 ^ rest
    local byte = bytes and bytes[at] or block:byte(at)
    if byte % (2 * mask) < mask then -- that bit is 0; so it is faster than by the library of bits
      if not adds then return 1 end
      bytes = bytes or {block:byte(1, 64)}
      bytes[at] = byte + mask
    end
  end
  if not bytes then return 0 end
  -- The last byte first: the string gets its whole size at once, instead of being moved each time that it grows.
  if is_short then redis.call('SETRANGE', key, generation.blocks * 64 - 1, '\0') end
  redis.call('SETRANGE', key, start, string.char(unpack(bytes)))
  return 1
end

-- Whether a request is new, 1 or 0, and notes it. `is_link`: it was found on a page. What only a Bloom filter has is new as a
-- seed.
function seen_filter.mark(ctx, digest, is_link)
  local exact, bloom = ctx.seen_filter.exact, ctx.seen_filter.bloom
  local kind = is_link and ctx.A.seen_rate > 0 and 'bloom' or 'exact'
  local own = ctx.seen_filter[kind]
  if #own == 0 or own.count >= own[#own].capacity then seen_filter.add_generation(ctx, kind) end
  for place = kind == 'exact' and #exact - 1 or #exact, 1, -1 do -- the last one, if it is to be added there, comes last
    local key, member = seen_filter.exact_place(exact[place], digest)
    if redis.call('SISMEMBER', key, member) == 1 then return 0 end
  end
  for place = is_link and (kind == 'bloom' and #bloom - 1 or #bloom) or 0, 1, -1 do
    if seen_filter.is_new_to_bloom(ctx, bloom[place], digest, false) == 0 then return 0 end
  end
  local new
  if kind == 'bloom' then
    new = seen_filter.is_new_to_bloom(ctx, bloom[#bloom], digest, true)
  else
    new = redis.call('SADD', seen_filter.exact_place(exact[#exact], digest))
  end
  if new == 1 then own.count, own.has_changed = own.count + 1, true end
  return new
end

-- Forgets a request, but for what Bloom filters have of it: their bits belong to others, too.
function seen_filter.forget(ctx, digest)
  local exact = ctx.seen_filter.exact
  for place, generation in ipairs(exact) do
    local key, member = seen_filter.exact_place(generation, digest)
    if redis.call('SREM', key, member) == 1 and place == #exact then
      exact.count, exact.has_changed = math.max(exact.count - 1, 0), true
    end
  end
end

-- Whether a request is known: 'exact', 'bloom' (as a link, perhaps by mistake) or ''.
function seen_filter.kind_of(ctx, digest)
  for _, generation in ipairs(ctx.seen_filter.exact) do
    local key, member = seen_filter.exact_place(generation, digest)
    if redis.call('SISMEMBER', key, member) == 1 then return 'exact' end
  end
  for _, generation in ipairs(ctx.seen_filter.bloom) do
    if seen_filter.is_new_to_bloom(ctx, generation, digest, false) == 0 then return 'bloom' end
  end
  return ''
end

-- Keeps the counts; to be called once, when all is marked or forgotten.
function seen_filter.save(ctx)
  for kind, generations in pairs(ctx.seen_filter) do
    if generations.has_changed then redis.call('HSET', ctx.K.seen_meta, kind .. '_count', text(generations.count)) end
  end
end
