"""What is read of the whole crawl at once."""

from __future__ import annotations

from crawlproject.state.client import State
from tests.state.calls.calls import db, entry, join, lease, overview_of, put, rule


async def test_sources_with_work_and_those_of_them_that_are_due_are_counted(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 0.001), ("flickr", 0.001))
    for name in ("museum", "flickr"):
        await put(state, [entry(f"{name}{number}") for number in range(2)], name)
    while (before := await overview_of(state)).ready < 2:  # they begin one after the other
        assert before.due == 2
    assert len((await lease(state, 1)).grants) == 1
    after = await overview_of(state)
    assert (after.due, after.ready) == (2, 1)  # the next slot of the other is 1,000 s away


async def test_the_memory_of_redis_is_told(state: State) -> None:
    await state.redis.set("other", bytes(20_000_000))
    info = await db(state).info("memory")
    told = (await overview_of(state)).redis_bytes
    assert abs(told - info["used_memory"]) < 10_000_000
