"""How many leases a worker takes at a time: no more than it comes to in time.

Sources may together grant more than a worker can do. What it takes beyond that is late when its turn comes: it was
decoded, perhaps brought as far as the gate, and goes back, for nothing.
"""

from __future__ import annotations

MOST_A_CALL = 64  # leases; more than a worker can start from call to call
_LEAST = 4
_TOLERATED = 8  # one in so many may be late: any worker stops for a moment now and then


class Pace:
    """Bounds the leases of a call: half as many while too many are late, then an eighth more with each call.

    Only what was in time when it came here says how fast this worker is. What it turns back in time, as a host
    hangs, counts like what it starts: else hosts that hang would keep a worker slow that once was too slow.
    """

    def __init__(self) -> None:
        self._most = MOST_A_CALL
        self._in_time = 0
        self._missed = 0

    def keep_up(self) -> None:
        """Note that this worker came to a request in time."""
        self._in_time += 1

    def miss(self) -> None:
        """Note that this worker came to a request too late."""
        self._missed += 1

    def next(self) -> int:
        """Return how many leases the next call may take, by what became of those since the one before."""
        if self._missed * _TOLERATED > self._in_time + self._missed:
            self._most = max(self._most // 2, _LEAST)
        elif self._in_time:
            self._most = min(self._most + max(self._most // 8, 1), MOST_A_CALL)
        self._in_time = self._missed = 0
        return self._most
