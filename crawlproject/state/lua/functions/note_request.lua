-- Counts a request that had no lease, and was not for a robots.txt (scrapy shell): see the report.
--
-- A: source (that paid); requested: {sent (us), result, received (bytes of the body), rate (1/1000 rps)}.
-- Reply: 1.
register('note_request', function(ctx, K, A)
  report.note_request(ctx, A.source, unpack(A.requested))
  return 1
end, {'allow-oom'})
