-- Tells of requests whether they were ever enqueued, and changes nothing.
--
-- A: digests (see the seen filter).
-- Reply: of each 'exact'; 'bloom' (as a link, or, by its rate of false positives, not at all); or ''.
register('look_seen', function(ctx, K, A)
  local reply = {}
  for index, digest in ipairs(A.digests) do reply[index] = seen_filter.kind_of(ctx, digest) end
  return reply
end, {'no-writes'})
