"""Workers that live, lapse or leave: the scripts heartbeat and leave."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from crawlproject.state.client import State
from crawlproject.state.scripts import Present, Settlement
from tests.state.scripts.calls import db, entry, join, lease, names, outstanding, put, rule, waiting

pytestmark = pytest.mark.judges  # in milliseconds


async def test_leases_of_a_silent_worker_return_in_order_with_a_delivery_counted(state: State) -> None:
    await join(state)
    await join(state, "other")
    await rule(state, ("museum", 1000))
    await put(state, [entry(str(n)) for n in range(200)])
    assert len((await lease(state, want=150, room=150)).grants) == 150
    await db(state).lpush(state.keys.processing_of + "w", "s1", "s2")
    await asyncio.sleep(0.5)
    for _ in range(4):  # silent itself until now: perhaps Redis was away, and all get their whole time again
        late = await state.scripts.heartbeat("other", join=False, timeout=0.4, max_deliveries=3)
        assert late.lost == []
        await asyncio.sleep(0.11)
    beat = await state.scripts.heartbeat("other", join=False, timeout=0.4, max_deliveries=3)
    assert beat.alive
    assert beat.lost == [("w", 150, 0)]
    assert await waiting(state) == [b"s1", b"s2"]
    queued = await db(state).lrange(state.keys.queue_of + "0:museum", 0, -1)
    assert [one[3:].decode() for one in queued] == [str(n) for n in range(200)]
    assert [one[1] for one in queued] == [1] * 150 + [0] * 50
    assert await outstanding(state) == 200


async def test_one_call_takes_from_one_dead_worker(state: State) -> None:
    """What one held takes milliseconds, for which Redis serves nobody."""
    await rule(state, ("museum", 1000))
    await put(state, [entry(str(n)) for n in range(60)])
    for worker in ("first", "second", "third"):
        await join(state, worker)
        assert len((await lease(state, want=20, worker=worker, room=20)).grants) == 20
    await db(state).zadd(state.keys.workers, {"first": 1, "second": 2, "third": 3})
    await join(state)
    for dead in ("first", "second", "third"):
        beat = await state.scripts.heartbeat("w", join=True, timeout=30, max_deliveries=3)
        assert beat.lost == [(dead, 20, 0)]
    assert (await state.scripts.heartbeat("w", join=True, timeout=30, max_deliveries=3)).lost == []


async def test_the_last_delivery_lost_makes_a_dead_letter(state: State) -> None:
    await join(state, "other")
    await rule(state, ("museum", 100))
    await put(state, [entry("killer")])
    for lost in (1, 2, 3):
        await join(state)
        assert len((await lease(state)).grants) == 1
        await asyncio.sleep(0.06)
        await join(state, "other")
        beat = await state.scripts.heartbeat("other", join=True, timeout=0.05, max_deliveries=3)
        assert beat.lost == [("w", 0 if lost == 3 else 1, 1 if lost == 3 else 0)]
    ((_, letter),) = await db(state).xrange(state.keys.dead)
    assert letter[b"deliveries"] == b"3"
    assert letter[b"reason"].startswith(b"lost with its worker")
    assert await outstanding(state) == 0


async def test_a_worker_that_lapsed_is_notified_and_cannot_settle(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 100))
    await put(state, [entry("a")])
    (grant,) = (await lease(state)).grants
    await asyncio.sleep(0.06)
    await join(state, "other")
    await state.scripts.heartbeat("other", join=True, timeout=0.05, max_deliveries=3)
    beat = await state.scripts.heartbeat("w", join=False, timeout=30, max_deliveries=3)
    assert not beat.alive
    done = Settlement(grant.id, "museum", event=("image_metadata_updates", "{}"))
    assert (await state.scripts.settle("w", [done])).settled == [False]
    assert await db(state).xlen(state.keys.image_events) == 0


async def test_a_worker_that_leaves_gives_all_back_with_nothing_counted(state: State) -> None:
    await join(state)
    await join(state, "other")
    await rule(state, ("museum", 1000))
    await put(state, [entry(str(n)) for n in range(150)])
    assert len((await lease(state, want=150, room=150)).grants) == 150
    await db(state).lpush(state.keys.processing_of + "w", "s1", "s2")
    assert await state.scripts.leave("w") == 150
    assert await waiting(state) == [b"s1", b"s2"]
    await asyncio.sleep(0.2)
    reply = await lease(state, want=200, worker="other", room=200)
    assert names(reply) == [str(n) for n in range(150)]
    assert {g.entry[1] for g in reply.grants} == {0}


async def test_one_that_is_no_worker_takes_what_a_dead_worker_holds(state: State) -> None:
    await join(state)
    await rule(state, ("museum", 1000))
    await put(state, [entry(str(n)) for n in range(20)])
    assert len((await lease(state, want=20, room=20)).grants) == 20
    await db(state).lpush(state.keys.processing_of + "w", "s1", "s2")
    reclaim = partial(state.scripts.reclaim, timeout=0.4, max_deliveries=3)
    present, lost = await reclaim(Present())
    first = present
    while not lost:
        assert present.since == first.since or present.last - first.last > 200_000  # a gap: it begins anew
        await asyncio.sleep(0.05)
        present, lost = await reclaim(present)
    assert lost == [("w", 20, 0)]
    assert present.last - present.since >= 400_000
    assert await waiting(state) == [b"s1", b"s2"]
    assert await db(state).zcard(state.keys.workers) == 0
    queued = await db(state).lrange(state.keys.queue_of + "0:museum", 0, -1)
    assert [one[3:].decode() for one in queued] == [str(n) for n in range(20)]
    assert {one[1] for one in queued} == {1}


async def test_after_a_gap_of_its_own_it_waits_for_the_workers_again(state: State) -> None:
    await join(state)
    await db(state).zadd(state.keys.workers, {"w": 1.0})
    now = int((await db(state).time())[0]) * 1_000_000
    reclaim = partial(state.scripts.reclaim, timeout=30, max_deliveries=3)
    for before in (
        Present(),
        Present(now - 16_000_000, now - 90_000_000),  # Redis was away
        Present(now + 60_000_000, now - 90_000_000),  # its clock was set back
    ):
        present, lost = await reclaim(before)
        assert (present.since, lost) == (present.last, [])
    present, lost = await reclaim(Present(now - 10_000_000, now - 20_000_000))
    assert (present.since, lost) == (now - 20_000_000, [])
    present, lost = await reclaim(Present(now - 10_000_000, now - 40_000_000))
    assert lost == [("w", 0, 0)]


async def test_it_takes_nothing_from_a_worker_that_lives(state: State) -> None:
    await join(state)
    now = int((await db(state).time())[0]) * 1_000_000
    _, lost = await state.scripts.reclaim(Present(now, now - 90_000_000), timeout=30, max_deliveries=3)
    assert lost == []
    assert await db(state).zcard(state.keys.workers) == 1
