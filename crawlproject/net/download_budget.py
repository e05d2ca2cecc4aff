"""The bodies that are coming in, all together: hundreds of large ones at a time must not take the memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

MANY = 64 * 1024 * 1024  # bytes under way; beyond, nothing is leased
MOST = 2 * MANY  # bytes at most
_PATIENCE_S = 2.0  # beyond `MANY` until one of them has to go: no source keeps a worker idle by dripping


@dataclass(slots=True, eq=False)
class Body:
    """One that is coming in for `source`: `break_off` ends it."""

    source: str
    break_off: Callable[[], object]
    received: int = 0
    broken_off: bool = False


class DownloadBudget:
    """What has come of all bodies under way.

    At `MOST` bytes, or when there have been more than `MANY` for a while, the largest of the source that has the
    most of them is broken off. Its request comes again, with a delivery counted; before its last one it is leased
    alone, with all the memory to itself.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._under_way: set[Body] = set()
        self._received = 0
        self._many_since: float | None = None

    @property
    def many(self) -> bool:
        """Whether no more should be asked for."""
        return self._received > MANY

    def begin(self, source: str, break_off: Callable[[], object]) -> Body:
        """Return the account of a request that goes out."""
        body = Body(source, break_off)
        self._under_way.add(body)
        return body

    def receive(self, body: Body, count: int) -> None:
        """Note that `count` more bytes of `body` have come; break one off if there are too many."""
        if body not in self._under_way:
            return
        body.received += count
        self._received += count
        if not self.many:
            return
        if self._many_since is None:
            self._many_since = self._now()
        if self._received > MOST or self._now() - self._many_since > _PATIENCE_S:
            shares: Counter[str] = Counter()
            for one in self._under_way:
                shares[one.source] += one.received
            (source, _), *_ = shares.most_common(1)
            largest = max((one for one in self._under_way if one.source == source), key=lambda one: one.received)
            self.end(largest)
            largest.broken_off = True
            largest.break_off()

    def end(self, body: Body) -> None:
        """Forget a body: it has come, or failed."""
        if body in self._under_way:
            self._under_way.remove(body)
            self._received -= body.received
        if not self.many:
            self._many_since = None
