"""Quantiles of histograms."""

from __future__ import annotations

import bisect
import random
import statistics

from hypothesis import given
from hypothesis import strategies as st

from crawlproject.state.scripts import LATENCY_BOUNDS
from crawlproject.status.histogram import quantile

BUCKETS = len(LATENCY_BOUNDS) + 1


def test_quantiles_are_interpolated_within_their_bucket() -> None:
    assert quantile(0.5, [0, 10, 0, 0], (1.0, 2.0, 3.0)) == 1.5
    assert quantile(0.95, [90, 10, 0, 0], (1.0, 2.0, 3.0)) == 1.5
    assert quantile(0.99, [0, 0, 0, 4], (1.0, 2.0, 3.0)) == 3.0
    assert quantile(0.5, [0, 0, 0, 0], (1.0, 2.0, 3.0)) is None


@given(st.integers(0, 10_000))
def test_quantiles_lie_in_the_bucket_of_the_true_ones(seed: int) -> None:
    values = [random.Random(seed + n).lognormvariate(-1, 1) for n in range(400)]
    buckets = [0] * BUCKETS
    for value in values:
        buckets[bisect.bisect_left(LATENCY_BOUNDS, value)] += 1
    true = statistics.quantiles(values, n=100, method="inclusive")
    for part in (50, 95, 99):
        guess = quantile(part / 100, buckets)
        assert guess is not None
        lower, upper = (bisect.bisect_left(LATENCY_BOUNDS, value) for value in (guess, true[part - 1]))
        assert abs(lower - upper) <= 1  # at a bound, one value decides
