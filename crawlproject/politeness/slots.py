"""How late a send slot may be used."""

from __future__ import annotations

import math

LONGEST_S = 0.25


def tolerance(rate: float) -> float:
    """Return the seconds that a slot of a source of `rate` requests a second may be used late.

    What is sent late joins what is sent on time. If lateness is at most L, whatever arrives within a second
    had its slot within 1 + L seconds, so that there are at most ceil(rate x (1 + L)) of it; the contract
    allows 1.1 x rate + 1. That leaves L a tenth of a second at least. Half of it is for the way from here to
    the site, on which requests may overtake one another.
    """
    allowed = math.floor(1.1 * rate + 1e-9) + 1
    return min((allowed / rate - 1) / 2, LONGEST_S)
