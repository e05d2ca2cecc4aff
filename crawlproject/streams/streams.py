"""The entries of the streams in Redis: events, dead letters, the audit trail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import redis

from crawlproject.state.client import State

START = "0-0"  # where a reader stands that has read nothing
_PAGE = 500  # dead letters a call
_LEADERS = "leaders"  # the consumer group of the audit trail

RawEntry = tuple[bytes, dict[bytes, bytes]]


class EventEntry(NamedTuple):
    """An entry of an event stream, as it is; sinks/sink.py makes the event of it."""

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


async def newest_entries(state: State, streams: Mapping[str, int]) -> dict[str, list[RawEntry]]:
    """Return the newest entries (id, fields) of each stream, at most as many as `streams` says."""
    async with state.redis.pipeline(transaction=False) as pipe:
        for stream, count in streams.items():
            pipe.xrevrange(stream, count=count)
        return dict(zip(streams, await pipe.execute(), strict=True))


async def entries_after(state: State, stream: str, after: bytes | None, count: int) -> list[RawEntry]:
    """Return the newest entries of a stream after the id `after`, at most `count`; None: any."""
    entries: Any = await state.redis.xrevrange(stream, "+", "-" if after is None else b"(" + after, count=count)
    return list(entries)


async def untold(state: State, count: int) -> list[tuple[str, bytes]]:
    """Return entries (id, event) of the audit trail that no leader has told of; none where another leads.

    The oldest first. How far leaders have told is known by a consumer group of the stream: what one has read is
    read again until `note_told`.
    """
    if not await state.leads():
        return []
    audit = state.keys.audit
    try:
        async with state.redis.pipeline(transaction=False) as pipe:
            for after in ("0", ">"):  # first those that a leader was killed with
                pipe.xreadgroup(_LEADERS, _LEADERS, {audit: after}, count=count)
            answers: list[Any] = await pipe.execute()
    except redis.ResponseError as error:
        if "NOGROUP" not in str(error):
            raise
        await state.redis.xgroup_create(audit, _LEADERS, id=START, mkstream=True)
        return await untold(state, count)
    return [(entry.id, entry.fields.get(b"event", b"")) for answer in answers for entry in entries_of(answer)]


async def note_told(state: State, entries: Sequence[str]) -> None:
    """Note that these entries of the audit trail have been told."""
    await state.redis.xack(state.keys.audit, _LEADERS, *entries)


async def entries_back(
    state: State, stream: str, most: int, most_bytes: float, page_size: int
) -> AsyncIterator[list[RawEntry]]:
    """Yield the newest `most` entries of a stream in pages, newest first.

    The page in which their fields come to `most_bytes` is the last one.
    """
    end = b"+"
    while most > 0 and most_bytes > 0:
        page: Any = await state.redis.xrevrange(stream, end, count=min(most, page_size))
        if not page:
            return
        yield page
        most, end = most - len(page), b"(" + page[-1][0]
        most_bytes -= sum(len(name) + len(value) for _, fields in page for name, value in fields.items())
