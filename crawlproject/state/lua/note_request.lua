-- Counts a request that had no lease, and was not for a robots.txt (scrapy shell): see preludes/requests.lua.
-- needs: requests
--
-- A: source (that paid); sent (us); result; received (bytes of the body); sent_rate (1/1000 rps).
-- Reply: 1.

look_up_seconds({A.source})
note_request(A.source, A.sent, A.result, A.received, A.sent_rate)
save_requests()
return 1
