"""The newest entries of streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from crawlproject.state.client import State
from crawlproject.streams.readers import START, order

RawEntry = tuple[bytes, dict[bytes, bytes]]


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


async def untold(state: State, after: str, count: int) -> list[tuple[str, bytes]] | None:
    """Return entries (id, event) of the audit trail that no leader has told of, the oldest first.

    All come after `after`. None where another leads.
    """
    leader, told = await state.redis.mget(state.keys.leader, state.keys.audit_told)
    if leader != state.worker_id.encode():
        return None
    first = max(after, (told or b"").decode() or START, key=order)
    page = await state.redis.xrange(state.keys.audit, f"({first}", count=count)
    return [(at.decode(), fields[b"event"]) for at, fields in page]


async def note_told(state: State, entry: str) -> None:
    """Note the last entry of the audit trail that a leader has told of."""
    await state.redis.set(state.keys.audit_told, entry)


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
