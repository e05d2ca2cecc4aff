"""Redis' clock, mapped to this worker's."""

from __future__ import annotations

MICROS = 1_000_000
_WINDOW_S = 5.0  # seconds

# By how much a second the slots that follow may come sooner than those before them. With 2 % more slots in a
# second, each used as late as politeness/slots.py allows, 28 ms are left for the way to the site.
_SLEW = 0.02

# More than a reply can take (state/client.py): a fall by more is a step of Redis' clock, after which the scripts
# let nothing out until what had its slot is out (clock_guard.lua).
_STEP_S = 6.0


class RedisClock:
    """Maps Redis `TIME` (microseconds) to this worker's monotonic clock (seconds).

    Every reply says when its script ran, and arrives some time later: `received - ran` is the difference between
    the clocks plus the time that the reply took. The smallest value of the last five to ten seconds is the best
    estimate of the difference (the filter of NTP, RFC 5905 section 10), and never too small: a slot is never used
    early. A reply that a busy reactor reads late has no effect.

    A lower estimate, because the way from Redis got shorter, or its clock was set forward, is approached slowly
    (slewed): taken over at once, it would bring slots together. When Redis' clock is set back, scripts report how
    far the crawl's time is ahead of it (see clock.lua), and the estimate starts again.
    """

    def __init__(self) -> None:
        self._since = self._received = float("-inf")
        self._recent = self._previous = float("inf")
        self._ahead: int | None = None
        self._difference = float("-inf")

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
        estimate = min(self._recent, self._previous)
        if 0 < self._difference - estimate < _STEP_S and not grown:
            estimate = max(estimate, self._difference - _SLEW * (received - self._received))
        self._difference, self._received = estimate, received
        return max(grown, 0) / MICROS

    def local(self, moment: int) -> float:
        """Return `moment` (Redis, µs) on the local clock; `observe` must have been called before."""
        return moment / MICROS + self._difference
