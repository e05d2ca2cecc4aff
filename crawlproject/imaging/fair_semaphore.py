"""Whose picture is decoded next."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Container
from typing import Self

_LONG_S = 1.0  # for one picture; a large picture takes that, most take a few milliseconds


class Turn:
    """A place that a picture holds within the context, or until `end` is called before that."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def has_ended(self) -> bool:
        """Whether the place is the next one's."""
        return self._release is None

    def end(self) -> None:
        """Give the place to the next."""
        if self._release is not None:
            release, self._release = self._release, None
            release()


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

    async def turn(self, source: str) -> Turn:
        """Wait for a place."""
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        self._waiting.append((source, place))
        self._give()
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # the place was granted at the same moment
                self._release(source)
            raise
        began = loop.time()

        def release() -> None:
            if (took := loop.time() - began) > _LONG_S:
                self._yielding[source] = loop.time() + took
            self._release(source)

        return Turn(release)

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
