"""The rate of a source, from its size or an operator's override."""

from __future__ import annotations

from typing import NamedTuple

MINIMUM_RATE = 0.2  # rps: of the smallest sources, and of those whose size is unknown
MAXIMUM_RATE = 200.0  # rps
SMALL, LARGE = 5_000, 500_000_000  # images
OVER_ROBOTS = "over-robots"  # after a rate: whatever delay robots.txt asks for


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


def rate_of(value: bytes) -> float | None:
    """Return a rate that an operator has written, 0 for "nothing goes out"; None if it is not a valid rate.

    The lowest is one request in twelve days, the highest 100,000 a second: anything beyond is a typing error.
    """
    try:
        rate = float(value)
    except ValueError:
        return None
    return rate if b"_" not in value and (rate == 0 or 1e-6 <= rate <= 1e5) else None


def row_text(by_size: float, domains: str, options: str) -> str:
    """Return a row of the catalogue as it is written in Redis; the last two are "" where there are none."""
    return f"{by_size!r}\t{domains}\t{options}"


class Limit(NamedTuple):
    """The limit of a source: `rps` requests a second, if `over_robots` whatever delay its robots.txt asks for."""

    rps: float
    over_robots: bool = False

    def __str__(self) -> str:
        """Return it as it is written in Redis, and as an operator may write it: `5.0`, `5.0 over-robots`."""
        return f"{self.rps} {OVER_ROBOTS}" if self.over_robots else str(self.rps)


def limit_of(value: bytes) -> Limit | None:
    """Return the limit that is written so, by an operator or by the leader; None if it is not valid."""
    rate, *words = value.split() or [b""]
    rps = rate_of(rate)
    return Limit(rps, bool(words)) if rps is not None and words in ([], [OVER_ROBOTS.encode()]) else None
