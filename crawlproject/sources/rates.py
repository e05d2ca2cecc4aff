"""The rate of a source, from its size or an operator's override."""

from __future__ import annotations

MINIMUM_RATE = 0.2  # rps: of the smallest sources, and of those whose size is unknown
MAXIMUM_RATE = 200.0  # rps
SMALL, LARGE = 5_000, 500_000_000  # images


def rate_for(size: int) -> float:
    """Return the rate, in requests a second, that a source of `size` images can bear.

    It grows linearly with the size: min + (max - min) * size / (large - small), the minimum up to `SMALL`,
    the maximum from `LARGE` on.
    """
    if size <= SMALL:
        return MINIMUM_RATE
    if size >= LARGE:
        return MAXIMUM_RATE
    return min(MINIMUM_RATE + (MAXIMUM_RATE - MINIMUM_RATE) * size / (LARGE - SMALL), MAXIMUM_RATE)


def override_of(value: bytes) -> float | None:
    """Return the rate of an operator's override, 0 for "nothing goes out"; None if it is not a valid rate.

    The lowest is one request in twelve days, the highest 100,000 a second: anything beyond is a typing error.
    """
    try:
        rate = float(value)
    except ValueError:
        return None
    return rate if b"_" not in value and (rate == 0 or 1e-6 <= rate <= 1e5) else None
