-- Gives up the places that requests have in a seen filter, but for what Bloom filters have of them.
--
-- A: digests (see the seen filter).
-- Reply: nothing.
register('forget_seen', function(ctx, K, A)
  for _, digest in ipairs(A.digests) do seen_filter.forget(ctx, digest) end
  seen_filter.save(ctx)
end, {'allow-oom'})
