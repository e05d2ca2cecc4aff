"""Redis' clock, mapped to this worker's."""

from __future__ import annotations

MICROS = 1_000_000
_WINDOW_S = 5.0  # seconds


class RedisClock:
    """Maps Redis `TIME` (microseconds) to this worker's monotonic clock (seconds).

    Every reply says when its script ran, and arrives some time later: `received - ran` is the difference between
    the clocks plus the time that the reply took. The smallest value of the last five to ten seconds is the best
    estimate of the difference (the filter of NTP, RFC 5905 section 10), and never too small: a slot is never used
    early. A reply that a busy reactor reads late has no effect. When Redis' clock is set back, scripts report how
    far the crawl's time is ahead of it (see clock.lua), and the estimate starts anew.
    """

    def __init__(self) -> None:
        self._since = float("-inf")
        self._recent = self._previous = float("inf")
        self._ahead: int | None = None

    def observe(self, ran: int, received: float, ahead: int = 0) -> float:
        """Learn from a script that ran at `ran` (Redis, µs) and whose reply came at `received` (here, s).

        `ahead` (µs) is how far the crawl's time is ahead of the server's; return by how many seconds it has grown.
        """
        grown = 0 if self._ahead is None else ahead - self._ahead
        self._ahead = ahead
        if grown:
            self._since = float("-inf")
            self._previous = float("inf")
        if received - self._since > _WINDOW_S:
            fresh = received - self._since <= 2 * _WINDOW_S
            self._previous = self._recent if fresh else float("inf")
            self._recent = float("inf")
            self._since = received
        self._recent = min(self._recent, received - ran / MICROS)
        return max(grown, 0) / MICROS

    def local(self, moment: int) -> float:
        """Return `moment` (Redis, µs) on the local clock; `observe` must have been called before."""
        return moment / MICROS + min(self._recent, self._previous)
