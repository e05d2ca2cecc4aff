"""What is read of the whole crawl at once: whether it has work, and how much (the scripts idle and collect)."""

from __future__ import annotations

from crawlproject.state.client import State
from tests.state.calls.calls import (
    begin,
    db,
    entry,
    join,
    lease,
    overview_of,
    processing_list,
    put,
    request,
    rule,
    settle,
)


async def test_idle_looks_at_frontier_seed_list_and_processing_lists(state: State) -> None:
    await join(state)
    assert (await state.scripts.idleness()).is_idle
    await db(state).lpush(state.keys.seeds, "a")
    assert not (await state.scripts.idleness()).is_idle
    await state.scripts.take_seeds("w", 1)
    assert not (await state.scripts.idleness()).is_idle
    await rule(state, ("museum", 100))
    await state.scripts.enqueue("w", [request("a", 1)], seeds=await processing_list(state))
    assert not (await state.scripts.idleness()).is_idle
    (grant,) = (await lease(state)).grants
    assert not (await state.scripts.idleness()).is_idle
    await settle(state, grant, dead="x")
    assert (await state.scripts.idleness()).is_idle


async def test_work_of_halted_sources_and_work_that_waits_for_an_extent_count(state: State) -> None:
    await begin(state, 100, "a")
    await db(state).sadd(state.keys.halted, "museum")
    assert not (await state.scripts.idleness()).is_idle
    await state.scripts.drop_queued("museum", "purged", count=9)
    assert (await state.scripts.idleness()).is_idle
    await db(state).rpush(state.keys.extents_of + "0:photos", f"images-0/1-a:0:9:{'a' * 40}:64")
    await db(state).zadd(state.keys.overflow_due, {"photos": 1})  # it has nothing queued, so is not due
    assert not (await state.scripts.idleness()).is_idle


async def test_neither_a_lost_counter_nor_a_lost_index_ends_a_crawl(state: State) -> None:
    await begin(state, 100, "a")
    await db(state).hdel(state.keys.counters, "outstanding")
    assert not (await state.scripts.idleness()).is_idle
    await db(state).hset(state.keys.counters, "outstanding", 1)
    await db(state).delete(*state.keys.due)
    assert not (await state.scripts.idleness()).is_idle


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
