"""Whose picture is decoded next."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager

_LONG_S = 1.0  # for one picture; a large one takes that, most a few milliseconds


class FairSemaphore:
    """`places` for the pictures of many sources, in the order in which they have come.

    While others wait, a source has all places but one at most (of one place, that): pictures that each take as
    long as a picture may leave room for those of others. And a source whose picture took long lets those of
    others go first for as long as that took: else its next would hold them up as well.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._max_per_source = max(places - 1, 1)
        self._busy: Counter[str] = Counter()
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()
        self._yielding: dict[str, float] = {}  # sources that let others go first, and until when (loop.time())

    @asynccontextmanager
    async def turn(self, source: str) -> AsyncIterator[None]:
        """Wait for a place, and have it within."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((source, place))
        self._give()
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it came at that moment
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
                self._yielding = {one: until for one, until in self._yielding.items() if until > now}
            # Where all that wait have what they may have, one source waits alone.
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
        """Return who has waited for longest of those that may have a place, and of other sources than these."""
        waiting = ((n, one) for n, (one, _) in enumerate(self._waiting) if self._busy[one] < self._max_per_source)
        return next((n for n, one in waiting if one not in excluding), None)
