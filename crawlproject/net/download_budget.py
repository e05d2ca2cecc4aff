"""Bounds the response bodies being received, all together: hundreds of large ones must not exhaust the memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

SOFT_LIMIT = 64 * 1024 * 1024  # bytes received of bodies under way; above it, nothing is leased
HARD_LIMIT = 2 * SOFT_LIMIT  # bytes
_PATIENCE_S = 2.0  # above `SOFT_LIMIT` until a body is aborted: no source keeps a worker idle by sending slowly


@dataclass(slots=True, eq=False)
class Body:
    """A body being received for `source`; `abort` ends the download."""

    source: str
    abort: Callable[[], object]
    received: int = 0
    aborted: bool = False


class DownloadBudget:
    """Counts the bytes received of all bodies under way.

    Above `HARD_LIMIT` bytes, or after `_PATIENCE_S` above `SOFT_LIMIT`, the source with the most bytes loses its
    largest body. That request is tried again, with a delivery counted.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._under_way: set[Body] = set()
        self._received = 0
        self._over_since: float | None = None

    @property
    def over_soft_limit(self) -> bool:
        """Whether nothing more should be leased."""
        return self._received > SOFT_LIMIT

    def begin(self, source: str, abort: Callable[[], object]) -> Body:
        """Return the account of the body of a request that goes out."""
        body = Body(source, abort)
        self._under_way.add(body)
        return body

    def receive(self, body: Body, count: int) -> None:
        """Count `count` more bytes of `body`; abort a body if there are too many."""
        if body not in self._under_way:
            return
        body.received += count
        self._received += count
        if not self.over_soft_limit:
            return
        if self._over_since is None:
            self._over_since = self._now()
        if self._received > HARD_LIMIT or self._now() - self._over_since > _PATIENCE_S:
            shares: Counter[str] = Counter()
            for other in self._under_way:
                shares[other.source] += other.received
            (source, _), *_ = shares.most_common(1)
            of_source = [other for other in self._under_way if other.source == source]
            largest = max(of_source, key=lambda other: other.received)
            self.end(largest)
            largest.aborted = True
            largest.abort()

    def end(self, body: Body) -> None:
        """Forget a body that is complete or has failed."""
        if body in self._under_way:
            self._under_way.remove(body)
            self._received -= body.received
        if not self.over_soft_limit:
            self._over_since = None


@cache
def budget_of_process() -> DownloadBudget:
    """Return the budget that all crawlers of this process share."""
    return DownloadBudget()
