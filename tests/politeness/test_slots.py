from __future__ import annotations

import math

import pytest

from crawlproject.politeness.slots import LONGEST_S, tolerance

RATES = [0.001, 0.2, 0.9, 1.0, 1.8, 5.0, 8.19, 9.95, 10.0, 24.2, 40.16, 99.99, 100.0, 180.0, 200.0, 1000.0]


@pytest.mark.parametrize("rate", RATES)
def test_the_latest_use_of_slots_keeps_every_second_within_the_contract(rate: float) -> None:
    late = tolerance(rate)
    assert 0.049 < late <= LONGEST_S
    # as many slots as fit into a second and the greatest lateness, as long again on the way
    assert math.ceil(rate * (1 + 2 * late) - 1e-9) <= 1.1 * rate + 1 + 1e-9


@pytest.mark.parametrize(
    ("rate", "seconds"), [(0.2, 0.25), (5.0, 0.1), (10.0, 0.1), (40.16, 0.0603), (200.0, 0.0525)]
)
def test_slow_sources_are_given_more(rate: float, seconds: float) -> None:
    assert tolerance(rate) == pytest.approx(seconds, abs=1e-3)
