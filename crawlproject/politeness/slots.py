"""Send slots: how far ahead they are reserved, and how late one may be used."""

from __future__ import annotations

import math

HORIZON_S = 0.5  # how far ahead send slots are reserved
LEASE_EVERY_S = 0.4  # between the lease calls of a worker: for what is left of the horizon, each may take long
LATE_S = 0.05  # how late a slot may be used that was exchanged for one that was missed

MAX_LATE_S = 0.25

# How long nothing goes out while the time, or which slots have been given out, is in doubt (state/clock.py and
# the Lua module `clock`): until earlier slots are over, and one second more, so that no second has requests
# of both.
DOUBT_S = HORIZON_S + MAX_LATE_S + 1.0

# How far ahead the slot may be that a request gets whose connection took too long: used LATE_S late, it is used no
# later after it was given out than that of a lease (the Lua module `clock` counts on it).
RENEWAL_S = HORIZON_S + MAX_LATE_S - LATE_S


def tolerance(rate: float) -> float:
    """Return how many seconds late a slot of a source of `rate` requests a second may be used.

    Late requests join those sent on time. If lateness is at most L, the requests that arrive within one second had
    their slots within 1 + L seconds, so that there are at most ceil(rate x (1 + L)) of them; the contract allows
    1.1 x rate + 1. That leaves at least a tenth of a second for L. Half of it is reserved for the way to the site,
    on which requests may overtake one another.
    """
    allowed = math.floor(1.1 * rate + 1e-9) + 1
    return min((allowed / rate - 1) / 2, MAX_LATE_S)
