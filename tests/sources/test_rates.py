"""From sizes and overrides to rates."""

from __future__ import annotations

import pytest

from crawlproject.sources.rates import Limit, limit_of, rate_for, rate_of


@pytest.mark.parametrize(
    ("size", "rate"),
    [
        (0, 0.2),
        (5_000, 0.2),
        (5_001, 0.2019984),  # 0.2 + 199.8 * 5,001 / 499,995,000
        (1_000_000, 0.5996040),
        (450_000_000, 180.0217982),
        (499_999_999, 200.0),  # the formula alone gives a little more
        (500_000_000, 200.0),
    ],
)
def test_rate_by_size(size: int, rate: float) -> None:
    assert rate_for(size) == pytest.approx(rate, abs=1e-6)
    assert 0.2 <= rate_for(size) <= 200.0


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        (b"5", Limit(5.0)),
        (b" 0.25\n", Limit(0.25)),
        (b"0", Limit(0.0)),
        *((nonsense, None) for nonsense in (b"-0.1", b"nan", b"inf", b"", b"5 rps", b"\xff")),
        (b"5 over-robots", Limit(5.0, over_robots=True)),
        (b"0 over-robots", Limit(0.0, over_robots=True)),
        *(
            (nonsense, None)
            for nonsense in (b"over-robots", b"5 over-robots over-robots", b"-1 over-robots", b"1_0")
        ),
    ],
)
def test_a_limit_as_an_operator_writes_it(value: bytes, limit: Limit | None) -> None:
    assert limit_of(value) == limit
    assert limit is None or limit_of(str(limit).encode()) == limit
    if b"robots" not in value:
        assert rate_of(value) == (None if limit is None else limit.rps)
