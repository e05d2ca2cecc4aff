"""From sizes and overrides to rates."""

from __future__ import annotations

import pytest

from crawlproject.sources.rates import override_of, rate_for


@pytest.mark.parametrize(
    ("size", "rate"),
    [
        (0, 0.2),
        (1, 0.2),
        (4_999, 0.2),
        (5_000, 0.2),
        (5_001, 0.2019984),  # 0.2 + 199.8 * 5,001 / 499,995,000
        (10_000, 0.2039960),
        (1_000_000, 0.5996040),
        (25_000_000, 10.1900999),
        (450_000_000, 180.0217982),
        (499_999_999, 200.0),  # the formula alone gives a little more
        (500_000_000, 200.0),
        (10**15, 200.0),
    ],
)
def test_rate_by_size(size: int, rate: float) -> None:
    assert rate_for(size) == pytest.approx(rate, abs=1e-6)
    assert 0.2 <= rate_for(size) <= 200.0


def test_a_larger_source_is_never_slower() -> None:
    rates = [rate_for(size) for size in (0, 5_000, 5_001, 6_000, 10**6, 10**8, 499_999_999, 500_000_000, 10**9)]
    assert rates == sorted(rates)


@pytest.mark.parametrize(
    ("value", "rate"),
    [
        (b"5", 5.0),
        (b" 0.25\n", 0.25),
        (b"1e2", 100.0),
        (b"0", 0.0),
        (b"-0.1", None),
        (b"nan", None),
        (b"inf", None),
        (b"", None),
        (b"fast", None),
        (b"5 rps", None),
        (b"\xff", None),
    ],
)
def test_override(value: bytes, rate: float | None) -> None:
    assert override_of(value) == rate
