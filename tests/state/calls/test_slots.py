"""Slots without a lease, and slots in exchange for missed ones: the scripts acquire and renew."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from crawlproject import controls
from crawlproject.models import Slot
from crawlproject.politeness.slots import LATE_S
from crawlproject.state.client import State
from tests.standing_clock import StandingClock
from tests.state.calls.calls import begin, change_packed, db, entry, lease, put, rule, settle, slot_of

pytestmark = pytest.mark.usefixtures("clock")


async def test_a_request_without_a_lease_takes_a_slot_of_the_same_row(state: State) -> None:
    await begin(state, 0.5, "a")
    slot = await slot_of(state, source="museum")
    reply = await lease(state)
    assert reply.grants == []
    assert await db(state).zscore(state.keys.slots, "museum") == slot.at + 2_000_000


async def test_acquire_finds_the_source_of_a_domain_and_gives_none_without_a_pulse(state: State) -> None:
    assert (await state.scripts.acquire(domain="museum.example")).slot is None
    fence = await rule(state, ("museum", 2))
    await state.scripts.set_rates(fence, [], {"museum.example": "museum"})
    first = await slot_of(state, domain="museum.example")
    second = await slot_of(state, source="museum")
    assert (first.source, first.rate, second.at - first.at) == ("museum", 2.0, 500_000)


async def test_a_slot_that_was_missed_is_exchanged_for_the_present_if_none_was_given_out_after_it(
    state: State, clock: StandingClock
) -> None:
    await rule(state, ("museum", 2))
    missed = await slot_of(state, source="museum")
    clock.advance(0.3)
    renewed = await state.scripts.renew(missed, within=0.0)
    assert renewed is not None
    assert renewed.at - missed.at == 300_000
    after = await slot_of(state, source="museum")
    assert after.at - renewed.at == 500_000


async def test_a_slot_that_was_missed_is_exchanged_for_the_next_one_if_that_is_soon(state: State) -> None:
    await rule(state, ("museum", 2))
    missed, last = [await slot_of(state, source="museum") for _ in range(2)]
    assert await state.scripts.renew(missed, within=0.5) is None  # a second ahead
    renewed = await state.scripts.renew(missed, within=1.1)
    assert renewed is not None
    assert renewed.at - last.at == 500_000


@pytest.mark.parametrize(("before", "after"), [(0.2, 1.0), (1.0, 2.0), (2.0, 2.5)])
async def test_a_rate_raised_meanwhile_does_not_hide_that_another_slot_was_given_out(
    state: State, before: float, after: float
) -> None:
    fence = await rule(state, ("museum", before))
    missed = await slot_of(state, source="museum")
    await state.scripts.set_rates(fence, [("museum", after, after)], {})
    last = await slot_of(state, source="museum")
    renewed = await state.scripts.renew(missed, within=9.0)
    assert renewed is not None
    assert renewed.at - last.at == 1e6 / after


async def test_a_slot_missed_at_a_higher_rate_is_exchanged_for_the_next_one(
    state: State, clock: StandingClock
) -> None:
    """The request before it may have gone out a moment ago."""
    fence = await rule(state, ("museum", 2))
    _, missed = [await slot_of(state, source="museum") for _ in range(2)]
    await state.scripts.set_rates(fence, [("museum", 0.5, 0.5)], {})
    clock.advance(0.6)
    renewed = await state.scripts.renew(missed, within=9.0)
    assert renewed is not None
    assert renewed.at - missed.at == 2_000_000


async def test_nothing_is_renewed_for_whom_nothing_may_go_out(state: State) -> None:
    await begin(state, 100, "a", "b")
    first, last = (await lease(state)).grants

    async def renewed(name: str = last.id, worker: str = "w") -> bool:
        slot = Slot("museum", last.slot, last.at, last.rate, LATE_S)
        return await state.scripts.renew(slot, within=1.0, worker=worker, lease=name) is not None

    assert await renewed()
    assert not await renewed(worker="v")  # it is another's
    assert not await renewed(name=last.id.replace(".0:", ".1:"))
    await db(state).sadd(state.keys.halted, "museum")
    assert not await renewed()
    await db(state).srem(state.keys.halted, "museum")
    await change_packed(db(state), state.keys.circuit_of + "museum", generation=1)
    assert not await renewed()  # its circuit has opened and closed since
    await db(state).delete(state.keys.circuit_of + "museum")
    assert await renewed()
    await db(state).delete(state.keys.pulse)
    assert not await renewed(name=first.id)


async def test_acquire_reserves_nothing_far_ahead_and_says_when_to_ask_again(state: State) -> None:
    await rule(state, ("museum", 0.5), ("gallery", 100))
    await slot_of(state, source="museum")
    for _ in range(50):
        slot, wait = await state.scripts.acquire(source="museum")
        assert (slot, wait) == (None, 1.0)  # a second before the next slot, which is two seconds after the first
    given = [(await state.scripts.acquire(source="gallery")).slot for _ in range(300)]
    assert len([slot for slot in given if slot is not None]) == 101
    museum, gallery = await state.scripts.inspect(["museum", "gallery"])
    assert museum.next_slot - museum.now == 2
    assert gallery.next_slot - gallery.now == pytest.approx(1.01)


async def acquired(state: State, **more: Any) -> list[int]:
    """Return the slots that are to be had of `museum` at once."""
    slots = []
    while (slot := (await state.scripts.acquire(source="museum", **more)).slot) is not None:
        slots.append(slot.at)
    return slots


async def test_requests_for_others_robots_txt_take_one_slot_in_twenty_while_there_is_work(
    state: State, clock: StandingClock
) -> None:
    await begin(state, 100)
    assert len(await acquired(state, sent_by="stranger")) >= 100  # without work, all within a second
    await put(state, [entry("a")])
    clock.advance(0.8)
    visits = []
    for _ in range(70):
        slot, wait = await state.scripts.acquire(source="museum", sent_by="stranger")
        if slot is None:
            assert wait > 0
        else:
            visits.append(slot.at / 1e6)
        slot, _ = await state.scripts.acquire(source="museum", sent_by="museum")  # a redirect within the source
        assert slot is not None
    assert 3 <= len(visits) <= 5
    assert min(b - a for a, b in pairwise(visits)) > 0.195
    await lease(state, horizon=9.0)  # no work any more
    clock.advance(0.1)
    assert await acquired(state, sent_by="stranger")


async def test_unused_slots_that_were_the_last_ones_are_given_out_again(state: State) -> None:
    await begin(state, 2, "a", "b", "c")
    first, second, third = (await lease(state, horizon=3.0)).grants
    for grant in (third, second):  # as the lease queue does, the last one first
        await settle(state, grant, entry=grant.entry, unused=(grant.at, grant.rate))
    again = (await lease(state, horizon=3.0)).grants
    assert [grant.entry for grant in again] == [second.entry, third.entry]
    assert again[0].at - first.at >= 500_000
    assert again[0].at < third.at


async def test_an_unused_slot_before_others_is_lost(state: State) -> None:
    await begin(state, 2, "a", "b")
    first, second = (await lease(state, horizon=3.0)).grants
    await settle(state, first, entry=first.entry, unused=(first.at, first.rate))
    [again] = (await lease(state, horizon=3.0)).grants
    assert again.at - second.at >= 500_000


async def test_an_unused_slot_is_lost_where_the_rate_was_lowered(state: State) -> None:
    fence = await begin(state, 2, "a")
    [grant] = (await lease(state, horizon=3.0)).grants
    await state.scripts.set_rates(fence, [("museum", 0.5, 0.5)], {})
    after = await db(state).zscore(state.keys.slots, "museum")
    await settle(state, grant, entry=grant.entry, unused=(grant.at, grant.rate))
    assert await db(state).zscore(state.keys.slots, "museum") == after


@pytest.mark.parametrize("what", ["deleted rates", "deleted rates and more work", "resumption"])
@pytest.mark.parametrize("rate", [0.8, 2.5, 60.0])
async def test_what_sets_rates_anew_brings_no_slot_forward(state: State, rate: float, what: str) -> None:
    fence = await begin(state, rate, *map(str, range(100)))
    before = [grant.at for grant in (await lease(state)).grants]
    if what == "resumption":
        await controls.resume(state, ["museum"], "test")
        await state.scripts.watch(fence)
    else:
        await db(state).delete(state.keys.rates)
        if what.endswith("work"):
            await put(state, [entry("z")])
        await state.scripts.set_rates(fence, [("museum", rate, rate)], {})
    after = [grant.at for grant in (await lease(state)).grants]
    assert not after or after[0] >= before[-1] + 1e6 / rate - 1
