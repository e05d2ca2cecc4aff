"""What histograms say: how long all but a few took. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from crawlproject.state.scripts import LATENCY_BOUNDS


def quantile(part: float, buckets: Sequence[int], bounds: Sequence[float] = LATENCY_BOUNDS) -> float | None:
    """Return the value that `part` of the observations do not exceed; None without any.

    `buckets` counts those up to each of `bounds`, and those beyond. Within a bucket they count as spread evenly;
    of the last one nothing is known but its lower bound (histogram_quantile of Prometheus does the same).
    """
    total = sum(buckets)
    if not total:
        return None
    rank, passed = part * total, 0
    for index, count in enumerate(buckets[:-1]):
        if count and passed + count >= rank:
            low = bounds[index - 1] if index else 0.0
            return round(low + (bounds[index] - low) * max(rank - passed, 0.0) / count, 6)
        passed += count
    return bounds[-1]
