"""Redis' clock, mapped to this worker's."""

from __future__ import annotations

import math
import time

from crawlproject.politeness.slots import DOUBT_S

MICROS = 1_000_000
_UPTIME = getattr(
    time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC
)  # Linux' clock that a suspended machine does not stop
_DRIFT = 0.001  # more than two clocks drift apart
_MOST_S = 0.02  # that slots may come sooner, within a second, than those before: politeness/slots.py leaves 50 ms


class RedisClock:
    """Maps the crawl's time (µs, see the Lua module `clock`) to this worker's monotonic clock (seconds).

    A call that was sent at `sent`, ran at `ran`, and answered at `received` bounds the difference between the
    clocks: at least `sent - ran`, at most `received - ran`. The smallest upper bound is the estimate, never too
    small, so that no slot is used early.

    Doubt voids. A reply may contradict the estimate by more than 20 ms: a clock was set, a machine was suspended,
    or the path to Redis became shorter. Slots given out before and after it would come together. So slots before
    `valid_from` are void, and nothing goes out for `DOUBT_S`. By then the earlier slots of all workers are over.
    A worker that joins others calls `doubt` itself: their clocks may have jumped just before.
    """

    def __init__(self) -> None:
        self.valid_from = self._received = self._marked = -math.inf
        self._difference = self._mark = math.inf  # now, and a second ago or less
        self._suspended = _suspended()

    def doubt(self, now: float) -> None:
        """Void all slots until `DOUBT_S` after `now` (`local_time`)."""
        self.valid_from = now + DOUBT_S

    def observe(self, sent: float, ran: int, received: float) -> float:
        """Learn from a function: called at `sent` and answered at `received` (here, s), run at `ran` (Redis, µs).

        Return 0.0, or, if it raises doubt, the seconds by which Redis' clock went ahead of this one: negative if
        it fell behind.
        """
        least, most = sent - ran / MICROS, received - ran / MICROS
        if received - self._marked > 1.0:
            self._mark, self._marked = self._difference, received
        moved = self._mark - most if most < self._mark - _MOST_S else min(self._difference - least, 0.0)
        drifted, self._received = _DRIFT * (received - self._received), received
        self._suspended = max(self._suspended, _suspended())
        if abs(moved) <= _MOST_S:
            self._difference = min(self._difference + drifted, most)
            return 0.0
        self._difference = self._mark = most
        if math.isinf(moved):
            return 0.0  # the first estimate
        self.doubt(received)
        return moved

    def local(self, moment: int) -> float:
        """Return `moment` (Redis, µs) on the local clock; `observe` must have been called before."""
        return moment / MICROS + self._difference

    def permits(self, slot: float) -> bool:
        """Tell whether a slot (local clock, s) is free of doubt.

        While a machine is suspended its monotonic clock stands still, and other workers send: waking raises doubt.
        """
        if _suspended() - self._suspended > _MOST_S:
            self._suspended = _suspended()
            self.doubt(local_time())
        return slot >= self.valid_from


def local_time() -> float:
    """Return the present moment on the event loop's clock, which tells only when its present round began."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def uptime() -> float:
    """Return the seconds since this machine started, those in which it was suspended included."""
    return time.clock_gettime(_UPTIME)


def _suspended() -> float:
    """Return the seconds for which this machine was suspended since its start, or slightly less."""
    return uptime() - local_time()
