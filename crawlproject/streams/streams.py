"""The entries of the streams in Redis: events, and dead letters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, NamedTuple

from crawlproject.state.client import State

_PAGE = 500  # dead letters a call


class EventEntry(NamedTuple):
    """An entry of an event stream, as it is; sinks/entries.py makes the event of it."""

    stream: str
    id: str
    fields: Mapping[bytes, bytes]

    @property
    def name(self) -> str:
        """The event's name."""
        return self.stream.rpartition(":")[2]


def entries_of(answer: Any) -> Iterator[EventEntry]:
    """Yield the entries of an XREAD's answer: a map of pages in RESP3, a list of pairs in RESP2."""
    pairs = answer.items() if isinstance(answer, dict) else answer or ()
    for stream, page in pairs:
        entries = page[0] if page and isinstance(page[0], list) else page
        for at, fields in entries:
            yield EventEntry(stream.decode(), at.decode(), fields)


async def dead_letters(state: State) -> AsyncIterator[tuple[str, dict[bytes, bytes]]]:
    """Yield the dead letters that there are now, the oldest first: the id of each entry, and its fields."""
    dead = state.keys.dead
    newest = await state.redis.xrevrange(dead, count=1)
    if not newest:
        return
    last, start = newest[0][0], b"-"
    while True:
        page = await state.redis.xrange(dead, start, last, count=_PAGE)
        for at, fields in page:
            yield at.decode(), fields
        if len(page) < _PAGE:
            return
        start = b"(" + page[-1][0]
