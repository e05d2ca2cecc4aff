-- A worker that stops: whatever it still holds goes back, with no delivery counted.
--
-- A: worker; min_rate; circuit.
-- Reply: leases returned.
register('leave', function(ctx, K, A) return (grants.take_all(ctx, A.worker, false)) end, {'allow-oom'})
