"""Batches of events, as plug-ins take them: each at least once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from crawlproject.errors import StorageDown
from crawlproject.sinks.sink import BatchSink
from crawlproject.state.client import State
from crawlproject.streams.streams import EventEntry


class Refusing(BatchSink):
    """Takes nothing the first time."""

    def __init__(self, state: State) -> None:
        super().__init__(state, "archive", "nowhere", lambda: False)
        self.offered: list[list[str]] = []

    async def take(self, events: Sequence[tuple[EventEntry, dict[str, Any]]]) -> bool:
        self.offered.append([event["identifier"] for _, event in events])
        if len(self.offered) == 1:
            raise StorageDown("away")
        return True


async def test_a_batch_that_was_not_taken_comes_again(state: State) -> None:
    redis: Any = state.redis
    sink = Refusing(state)
    async with sink.opened():
        await redis.xadd(state.keys.image_events, {"event": '{"identifier": "a"}'})
        with pytest.raises(StorageDown):
            await sink.drain()
        assert await sink.drain() == 1
    assert sink.offered == [["a"], ["a"], []]
