-- Tells whether a request was ever enqueued, and changes nothing.
--
-- A: digest (see the seen filter).
-- Reply: 'exact'; 'bloom' (as a link, or, by its rate of false positives, not at all); or ''.
register('look_seen', function(ctx, K, A)
  return seen_filter.kind_of(ctx, A.digest)
end, {'no-writes'})
