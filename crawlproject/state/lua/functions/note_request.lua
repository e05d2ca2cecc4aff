-- Counts a request that had no lease, and was not for a robots.txt (scrapy shell): see the report.
--
-- A: source (that paid); sent (us); result; received (bytes of the body); sent_rate (1/1000 rps).
-- Reply: 1.
register('note_request', function(ctx, K, A)
  report.note_request(ctx, A.source, A.sent, A.result, A.received, A.sent_rate)
  report.save(ctx)
  return 1
end, {'allow-oom'})
