"""Whose picture is decoded next."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager

_LONG_S = 1.0  # for one picture; a large picture takes that, most take a few milliseconds


class FairSemaphore:
    """`places` for the pictures of many sources, in the order in which they come.

    While other sources wait, a source has at most all places but one (of one place: that place), so that its slow
    pictures leave room for those of others. And a source whose picture took long lets the others go first for as
    long as that took: otherwise its next picture would delay them as well.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._max_per_source = max(places - 1, 1)
        self._busy: Counter[str] = Counter()
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()
        self._yielding: dict[str, float] = {}  # sources that let others go first, until when (loop.time())

    @asynccontextmanager
    async def turn(self, source: str) -> AsyncIterator[None]:
        """Wait for a place, and hold it within the context."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((source, place))
        self._give()
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # the place was granted at the same moment
                self._release(source)
            raise
        now = asyncio.get_running_loop().time
        began = now()
        try:
            yield
        finally:
            if (took := now() - began) > _LONG_S:
                self._yielding[source] = now() + took
            self._release(source)

    def _release(self, source: str) -> None:
        self._busy[source] -= 1
        if not self._busy[source]:
            del self._busy[source]
        self._free += 1
        self._give()

    def _give(self) -> None:
        while self._free and self._waiting:
            if self._yielding:
                now = asyncio.get_running_loop().time()
                self._yielding = {name: until for name, until in self._yielding.items() if until > now}
            # If every waiting source is at its maximum, only one source waits: it may have the place.
            index = self._first_waiting(self._yielding)
            if index is None:
                index = self._first_waiting(()) or 0
            source, place = self._waiting[index]
            del self._waiting[index]
            if not place.cancelled():
                self._free -= 1
                self._busy[source] += 1
                place.set_result(None)

    def _first_waiting(self, excluding: Container[str]) -> int | None:
        """Return the index of the first in the queue whose source is below its maximum and not in `excluding`."""
        for index, (source, _) in enumerate(self._waiting):
            if self._busy[source] < self._max_per_source and source not in excluding:
                return index
        return None
