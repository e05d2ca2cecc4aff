"""What the leader writes, workers that live, lapse or leave, and whether the crawl has work."""

from __future__ import annotations

import pytest

from crawlproject.state.client import State
from tests.standing_clock import StandingClock
from tests.state.calls.calls import (
    begin,
    db,
    entry,
    join,
    lease,
    names,
    outstanding,
    overview_of,
    processing_list,
    put,
    request,
    rule,
    settle,
    waiting,
)
from tests.streams.records import packed

pytestmark = pytest.mark.usefixtures("clock")


async def test_one_leads_and_a_replaced_leader_writes_nothing(state: State) -> None:
    old = await state.scripts.lead("a", ready=True)
    assert old is not None
    assert await state.scripts.lead("b", ready=True) is None
    assert await state.scripts.lead("a", ready=True) == old
    await state.scripts.resign("b")
    assert await state.scripts.lead("b", ready=True) is None
    await state.scripts.resign("a")
    new = await state.scripts.lead("b", ready=True)
    assert new == old + 1
    assert not await state.scripts.set_rates(old, [("museum", 99, 99)], {"x": "y"})
    assert not await state.scripts.forget(old, ["museum"], ["x"])
    assert not await state.scripts.exclude({"museum": ""}, fence=old)
    assert await state.scripts.include(["museum"], fence=old) == {}
    await db(state).sadd(state.keys.halted, "museum")
    assert not await state.scripts.watch(old)
    written = (state.keys.rates, state.keys.hosts, state.keys.excluded, state.keys.audit)
    assert await db(state).exists(*written) == 0


async def test_the_pulse_dies_with_the_leader(state: State) -> None:
    await state.scripts.lead("a", ready=True)
    left = [await db(state).pttl(key) for key in (state.keys.pulse, state.keys.leader)]
    assert [ttl for ttl in left if ttl == -1 or ttl > 5000] == []


@pytest.mark.parametrize(("before", "after"), [(0.2, 50.0), (50.0, 0.2), (0.0, 4.0), (4.0, 4.0)])
async def test_a_new_rate_counts_from_the_last_slot_used(
    state: State, clock: StandingClock, before: float, after: float
) -> None:
    await join(state)
    fence = await rule(state, ("museum", before or 10.0))
    await put(state, [entry("a"), entry("b")])
    (first,) = (await lease(state, want=1)).grants
    if not before:
        await state.scripts.set_rates(fence, [("museum", 0.0, 1)], {})
    await state.scripts.set_rates(fence, [("museum", after, 1)], {})
    clock.advance(1 / (after if before else 10.0))
    [second] = (await lease(state, want=1)).grants
    assert second.at - first.at == pytest.approx(1e6 / (after if before else 10.0), abs=2)


async def test_what_nobody_reads_is_kept_unless_the_oldest_are_to_go_counted(state: State) -> None:
    fence = await rule(state)
    for n in range(1000):
        await db(state).xadd(state.keys.image_events, {"event": str(n)})
    reason, dropped = await state.scripts.trim(fence, maxlen=300)
    assert (
        "crawl:image_metadata_updates holds more than CRAWL_STREAM_MAXLEN events that no reader has read" in reason
    )
    assert (dropped, await db(state).xlen(state.keys.image_events)) == (0, 1000)
    await db(state).hset(state.keys.readers, "slow", packed(last={state.keys.image_events: "0-0"}))
    reason, dropped = await state.scripts.trim(fence, maxlen=300, drop=True)
    left = await db(state).xlen(state.keys.image_events)
    assert reason == ""
    assert dropped == 1000 - left
    assert 300 <= left <= 400
    assert int(await db(state).hget(state.keys.totals, "events_trimmed") or 0) == dropped


async def test_what_a_reader_has_not_read_is_kept_and_leasing_pauses(state: State) -> None:
    fence = await begin(state, 100)
    ids = [await db(state).xadd(state.keys.image_events, {"event": str(n)}) for n in range(1000)]
    images = state.keys.image_events
    await db(state).hset(state.keys.readers, "host:/tmp/out.jsonl", packed(last={images: ids[99]}))
    reason, dropped = await state.scripts.trim(fence, maxlen=300)
    assert "host:/tmp/out.jsonl" in reason
    assert dropped == 0
    entries = await db(state).xrange(state.keys.image_events)
    assert entries[-900:][0][1] == {b"event": b"100"}
    assert (await lease(state)).reason == reason
    await db(state).hset(state.keys.readers, "host:/tmp/out.jsonl", packed(last={images: ids[-1]}))
    assert await state.scripts.trim(fence, maxlen=300) == ("", 0)
    assert await db(state).xlen(state.keys.image_events) <= 300


async def test_past_slots_are_not_kept(state: State, clock: StandingClock) -> None:
    fence = await rule(state, ("museum", 1000), ("slow", 0.2))
    await state.scripts.acquire(source="museum")
    await state.scripts.acquire(source="slow")
    clock.advance(0.02)
    await state.scripts.trim(fence, maxlen=10)
    assert await db(state).zrange(state.keys.slots, 0, -1) == [b"slow"]


async def test_leases_of_a_silent_worker_return_in_order_with_a_delivery_counted(
    state: State, clock: StandingClock
) -> None:
    await join(state)
    await join(state, "other")
    await rule(state, ("museum", 1000))
    await put(state, [entry(str(n)) for n in range(200)])
    assert len((await lease(state, want=150, room=150)).grants) == 150
    await db(state).lpush(state.keys.processing_of + "w", "s1", "s2")
    clock.advance(31)
    # silent itself until now: perhaps Redis was away, and all get their whole time again
    for seconds in (10, 10, 9.9, 0.1):
        beat = await state.scripts.heartbeat("other", join=False, timeout=30, max_deliveries=3)
        assert beat.lost is None
        clock.advance(seconds)
    beat = await state.scripts.heartbeat("other", join=False, timeout=30, max_deliveries=3)
    assert beat.alive
    assert beat.lost == ("w", 150, 0)
    assert await waiting(state) == [b"s1", b"s2"]
    queued = await db(state).lrange(state.keys.queue_of + "0:museum", 0, -1)
    assert [one[3:].decode() for one in queued] == [str(n) for n in range(200)]
    assert [one[1] for one in queued] == [1] * 150 + [0] * 50
    assert await outstanding(state) == 200


async def test_who_was_silent_too_takes_nothing_though_somebody_else_has_joined_meanwhile(state: State) -> None:
    await db(state).zadd(state.keys.workers, {"w": 1, "other": 2})
    await join(state, "new")
    beats = [await state.scripts.heartbeat("other", join=False, timeout=30, max_deliveries=3) for _ in range(2)]
    assert [beat.lost for beat in beats] == [None, ("w", 0, 0)]


async def test_a_worker_that_lapsed_is_notified_and_cannot_settle(state: State) -> None:
    await begin(state, 100, "a")
    (grant,) = (await lease(state)).grants
    await db(state).zadd(state.keys.workers, {"w": 1})
    await join(state, "other")
    await state.scripts.heartbeat("other", join=True, timeout=30, max_deliveries=3)
    beat = await state.scripts.heartbeat("w", join=False, timeout=30, max_deliveries=3)
    assert not beat.alive
    assert await settle(state, grant, event=("image_metadata_updates", "{}")) == [False]
    assert await db(state).xlen(state.keys.image_events) == 0


async def test_a_worker_that_leaves_gives_all_back_with_nothing_counted(
    state: State, clock: StandingClock
) -> None:
    await join(state)
    await join(state, "other")
    await rule(state, ("museum", 1000))
    await put(state, [entry(str(n)) for n in range(150)])
    assert len((await lease(state, want=150, room=150)).grants) == 150
    await db(state).lpush(state.keys.processing_of + "w", "s1", "s2")
    assert await state.scripts.leave("w") == 150
    assert await waiting(state) == [b"s1", b"s2"]
    clock.advance(0.2)
    reply = await lease(state, want=200, worker="other", room=200)
    assert names(reply) == [str(n) for n in range(150)]
    assert {g.entry[1] for g in reply.grants} == {0}


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
    told = (await overview_of(state)).redis_bytes
    assert 20_000_000 < told <= (await db(state).info("memory"))["used_memory_peak"]
