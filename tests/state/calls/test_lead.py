"""What the leader writes: the scripts lead, set_rates, forget and trim."""

from __future__ import annotations

import pytest

from crawlproject.state.client import State
from tests.standing_clock import StandingClock
from tests.state.calls.calls import begin, db, entry, join, lease, put, rule
from tests.streams.records import packed


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
