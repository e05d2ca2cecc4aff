"""Leave to send a request, where it is written to its connection; against a real Redis."""

from __future__ import annotations

import asyncio

import pytest

from crawlproject.frontier.codec import digest_of
from crawlproject.models import Lease, Slot
from crawlproject.net.send_slot import Passage, try_send_slot
from crawlproject.politeness.slots import HORIZON_S, LATE_S, tolerance
from crawlproject.state.calls import NewRequest
from crawlproject.state.client import State
from tests.leading import lead
from tests.settings_of_functions import within

pytestmark = pytest.mark.judges  # in milliseconds


async def leases(state: State, count: int, rate: float) -> list[Lease]:
    """Return leases of a source of `rate`, the only ones that it has given out."""
    await state.scripts.heartbeat(state.worker_id, join=True, timeout=30, max_deliveries=3)
    fence = await lead(state)
    await state.scripts.set_rates(fence, [("museum", rate, rate)], {})
    requests = [
        NewRequest(bytes((1, 0, 0, n)), digest_of("", str(n)), again=True, source="museum") for n in range(count)
    ]
    await within(state.scripts, high_water=1000).enqueue("w", requests)
    reply = await within(state.scripts, dead_maxlen=9).lease(
        state.worker_id, count, rooms={}, room=count, horizon=10.0
    )
    assert len(reply.grants) == count
    return [
        Lease(one.id, one.slot, one.slot + tolerance(one.rate), 0, one.entry, one.at, one.rate)
        for one in reply.grants
    ]


async def missed(lease: Lease) -> None:
    await asyncio.sleep(max(lease.latest + 0.01 - asyncio.get_running_loop().time(), 0))


async def test_a_request_goes_out_late_if_nobody_comes_behind_it(state: State) -> None:
    (lease,) = await leases(state, 1, rate=1)
    leave = Passage.of_lease(state, lease, "museum.example")
    assert leave.is_open
    await missed(lease)
    assert not leave.is_open
    assert await leave.renew()
    assert leave.is_open
    now = asyncio.get_running_loop().time()
    assert lease.latest <= now + LATE_S
    again, _ = await state.scripts.acquire(source="museum")
    assert again is not None
    assert again.moment > now + 0.9


async def test_a_slot_without_a_lease_may_be_used_as_late_as_one_with(state: State) -> None:
    await leases(state, 0, rate=0.2)
    slot, _ = await state.scripts.acquire(source="museum")
    assert slot is not None
    leave = Passage(state, slot, "museum.example")
    assert slot.latest == slot.moment + tolerance(0.2)
    await asyncio.sleep(max(slot.moment + LATE_S + 0.02 - asyncio.get_running_loop().time(), 0))
    late = asyncio.get_running_loop().time() - slot.moment
    assert leave.is_open == (late <= tolerance(0.2))
    await asyncio.sleep(max(slot.latest + 0.01 - asyncio.get_running_loop().time(), 0))
    assert not leave.is_open


async def test_a_request_waits_for_another_slot_if_that_is_soon(state: State) -> None:
    first, last = await leases(state, 2, rate=5)
    leave = Passage.of_lease(state, first, "museum.example")
    await missed(first)
    assert await leave.renew()
    assert asyncio.get_running_loop().time() >= last.slot + 0.2 - 0.02  # the clock of Redis is estimated
    assert leave.waited > 0


async def test_no_slot_far_ahead_is_taken(state: State) -> None:
    first, _ = await leases(state, 2, rate=1)
    leave = Passage.of_lease(state, first, "museum.example")
    await missed(first)
    assert not await leave.renew()
    assert not leave.is_open


async def test_what_was_revoked_is_not_sent_even_in_time(state: State) -> None:
    (lease,) = await leases(state, 1, rate=1)
    leave = Passage.of_lease(state, lease, "museum.example")
    lease.revoked = True
    assert not leave.is_open
    assert not await leave.renew()


async def test_a_redis_out_of_memory_lets_nothing_out_late(state: State) -> None:
    (lease,) = await leases(state, 1, rate=1)
    leave = Passage.of_lease(state, lease, "museum.example")
    await missed(lease)
    await state.redis.config_set("maxmemory", 1)
    try:
        assert not await leave.renew()
    finally:
        await state.redis.config_set("maxmemory", 0)


async def test_a_slot_far_ahead_is_not_used_if_its_source_was_halted_meanwhile(state: State) -> None:
    await leases(state, 1, rate=1 / (1.5 * HORIZON_S))  # so the next slot is further ahead than those of leases
    taking = asyncio.create_task(try_send_slot(state, source="museum", host="museum.example"))
    await asyncio.sleep(0.2)
    await state.redis.sadd(state.keys.halted, "museum")
    assert not isinstance(await taking, Slot)
