"""Whose picture is decoded next."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """`places` for the pictures of many sources, which take turns; each source's own come in their order.

    While others wait, a source has all places but one at most (of one place, that): pictures that each take as
    long as a picture may leave room for those of others.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._most = max(places - 1, 1)
        self._busy: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # the source whose turn it is comes first

    @asynccontextmanager
    async def turn(self, source: str) -> AsyncIterator[None]:
        """Wait for a place, and have it within."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(source, deque()).append(place)
        self._give()
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it came at that moment
                self._release(source)
            raise
        try:
            yield
        finally:
            self._release(source)

    def _release(self, source: str) -> None:
        self._busy[source] -= 1
        if not self._busy[source]:
            del self._busy[source]
        self._free += 1
        self._give()

    def _give(self) -> None:
        while self._free and self._waiting:
            # All of them have what they may have only where one source waits alone.
            source = next((one for one in self._waiting if self._busy[one] < self._most), None)
            source = source or next(iter(self._waiting))
            places = self._waiting.pop(source)
            place = places.popleft()
            if places:
                self._waiting[source] = places
            if not place.cancelled():
                self._free -= 1
                self._busy[source] += 1
                place.set_result(None)
