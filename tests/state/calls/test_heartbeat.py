"""Workers that live, lapse or leave: the scripts heartbeat and leave."""

from __future__ import annotations

import pytest

from crawlproject.state.client import State
from tests.standing_clock import StandingClock
from tests.state.calls.calls import begin, db, entry, join, lease, names, outstanding, put, rule, settle, waiting

pytestmark = pytest.mark.usefixtures("clock")


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
