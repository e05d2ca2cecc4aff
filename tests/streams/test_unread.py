"""How far readers of the events are behind."""

from __future__ import annotations

from typing import Any

import pytest

from crawlproject.state.client import State
from crawlproject.streams import unread as counting
from crawlproject.streams.unread import UnreadEvents


async def emit(state: State, stream: str, first: int, count: int) -> None:
    redis: Any = state.redis
    async with redis.pipeline(transaction=False) as pipe:
        for number in range(first, first + count):
            pipe.xadd(stream, {"event": "{}"}, id=f"{number}-0")
        await pipe.execute()


async def stands(state: State, reader: str, stream: str, at: str) -> None:
    redis: Any = state.redis
    await redis.hset(state.keys.readers, f"{reader}\n{stream}", at)


async def test_each_reader_has_its_number_however_it_moves(state: State) -> None:
    images, halts = state.keys.image_events, state.keys.halted_events
    await emit(state, images, 1, 1_730)
    await emit(state, halts, 1, 3)
    for reader, at in (("slow", "0-0"), ("fast", "1700-0"), ("done", "1730-0")):
        await stands(state, reader, images, at)
    await stands(state, "slow", halts, "1-0")
    unread = UnreadEvents(state)
    assert await unread.look() == {"slow": 1_732, "fast": 30, "done": 0}
    await emit(state, images, 1_731, 20)
    assert await unread.look() == {"slow": 1_752, "fast": 50, "done": 20}
    await stands(state, "slow", images, "700-0")  # within a piece
    await stands(state, "fast", images, "1750-0")
    assert await unread.look() == {"slow": 1_052, "done": 20, "fast": 0}
    redis: Any = state.redis
    await redis.xtrim(images, minid="700-0")  # what all have read goes
    await stands(state, "slow", images, "1300-0")
    assert await unread.look() == {"slow": 452, "done": 20, "fast": 0}
    await stands(state, "done", images, "1000-0")  # it begins anew, further back
    assert await unread.look() == {"done": 750, "slow": 452, "fast": 0}
    await redis.hdel(state.keys.readers, f"slow\n{images}", f"slow\n{halts}")
    assert await unread.look() == {"done": 750, "fast": 0}


async def test_a_long_backlog_is_counted_in_several_looks(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_A_LOOK", 1_000)
    await emit(state, state.keys.image_events, 1, 2_600)
    await stands(state, "slow", state.keys.image_events, "0-0")
    unread = UnreadEvents(state)
    assert [(await unread.look())["slow"] for _ in range(4)] == [1_000, 2_000, 2_600, 2_600]


async def test_readers_are_bounded_and_their_names_printable(state: State) -> None:
    stream = state.keys.image_events
    await emit(state, stream, 1, 100)
    for number in range(60):
        await stands(state, f"r{number:02}", stream, f"{number}-0")
    redis: Any = state.redis
    await redis.hset(state.keys.readers, b"\xff\n" + stream.encode(), "junk")
    found = await UnreadEvents(state).look()
    assert len(found) == counting.MOST_READERS
    assert (found["r00"], found["r01"]) == (100, 99)
    assert all(name.isprintable() for name in found)
    assert "r40" not in found
