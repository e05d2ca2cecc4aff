"""Leave to send a request, where it is written to its connection; against a real Redis."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from crawlproject.models import Lease, Slot
from crawlproject.net import send_slot
from crawlproject.net.send_slot import Passage, try_send_slot
from crawlproject.politeness.slots import HORIZON_S, LATE_S, MAX_LATE_S, tolerance
from crawlproject.state import clock as redis_clock
from crawlproject.state import functions
from crawlproject.state.calls import frontier, sources
from crawlproject.state.client import State
from tests.standing_clock import StandingClock
from tests.state.calls import calls


@pytest.fixture
def clocks(clock: StandingClock, monkeypatch: pytest.MonkeyPatch) -> StandingClock:
    """The clocks of Redis and of this worker: time passes when a test says so, or while somebody waits."""
    for module in (send_slot, functions, frontier, sources, redis_clock):
        monkeypatch.setattr(module, "local_time", clock.local)
    monkeypatch.setattr(redis_clock, "uptime", clock.local)
    monkeypatch.setattr(send_slot, "asyncio", SimpleNamespace(sleep=clock.sleep))
    return clock


@pytest.fixture
def worker(clocks: StandingClock, state: State) -> State:
    """The connection of a worker that came with those clocks."""
    state.clock.__init__()  # type: ignore[misc]
    return state


async def leases(state: State, count: int, rate: float) -> list[Lease]:
    """Return leases of a source of `rate`, the only ones that it has given out."""
    await calls.join(state, state.worker_id)
    await calls.rule(state, ("museum", rate))
    await calls.put(state, [calls.entry(str(number)) for number in range(count)])
    reply = await calls.lease(state, count, state.worker_id, room=count, horizon=10.0)
    assert len(reply.grants) == count
    return reply.grants


async def test_a_request_goes_out_late_if_nobody_comes_behind_it(worker: State, clocks: StandingClock) -> None:
    (lease,) = await leases(worker, 1, rate=1)
    leave = Passage.of_lease(worker, lease, "museum.example")
    clocks.advance(tolerance(1))
    assert leave.is_open
    clocks.advance(0.01)
    assert not leave.is_open
    assert await leave.renew()
    assert leave.is_open
    assert lease.latest == pytest.approx(clocks.local() + LATE_S, abs=1e-3)
    again, _ = await worker.scripts.acquire(source="museum")
    assert again is not None
    assert again.moment == pytest.approx(clocks.local() + 1, abs=1e-3)


async def test_a_slot_without_a_lease_may_be_used_as_late_as_one_with(
    worker: State, clocks: StandingClock
) -> None:
    await leases(worker, 0, rate=0.2)
    slot, _ = await worker.scripts.acquire(source="museum")
    assert slot is not None
    leave = Passage(worker, slot, "museum.example")
    clocks.advance(tolerance(0.2) - 0.01)
    assert leave.is_open
    clocks.advance(0.02)
    assert not leave.is_open


async def test_a_request_waits_for_another_slot_if_that_is_soon(worker: State, clocks: StandingClock) -> None:
    first, last = await leases(worker, 2, rate=5)
    leave = Passage.of_lease(worker, first, "museum.example")
    clocks.advance(0.2)
    assert not leave.is_open
    assert await leave.renew()
    assert clocks.local() == pytest.approx(last.slot + 0.2, abs=1e-3)
    assert leave.waited == pytest.approx(0.2, abs=1e-3)


async def test_no_slot_far_ahead_is_taken(worker: State, clocks: StandingClock) -> None:
    first, _ = await leases(worker, 2, rate=1)
    leave = Passage.of_lease(worker, first, "museum.example")
    clocks.advance(0.3)
    assert not await leave.renew()
    assert not leave.is_open


async def test_what_was_revoked_is_not_sent_even_in_time(worker: State) -> None:
    (lease,) = await leases(worker, 1, rate=1)
    leave = Passage.of_lease(worker, lease, "museum.example")
    assert leave.is_open
    lease.revoked = True
    assert not leave.is_open
    assert not await leave.renew()


async def test_a_redis_out_of_memory_lets_nothing_out_late(worker: State, clocks: StandingClock) -> None:
    (lease,) = await leases(worker, 1, rate=1)
    leave = Passage.of_lease(worker, lease, "museum.example")
    clocks.advance(0.3)
    await worker.redis.config_set("maxmemory", 1)
    try:
        assert not await leave.renew()
    finally:
        await worker.redis.config_set("maxmemory", 0)


@pytest.mark.parametrize("is_halted", [False, True])
async def test_a_slot_far_ahead_is_not_used_if_its_source_was_halted_meanwhile(
    worker: State, clocks: StandingClock, monkeypatch: pytest.MonkeyPatch, is_halted: bool
) -> None:
    await leases(worker, 1, rate=1 / (1.5 * HORIZON_S))  # so the next slot is further ahead than those of leases

    async def sleep(seconds: float) -> None:
        clocks.advance(seconds)
        if is_halted:
            await worker.redis.sadd(worker.keys.halted, "museum")

    monkeypatch.setattr(send_slot, "asyncio", SimpleNamespace(sleep=sleep))
    taken = await try_send_slot(worker, source="museum", host="museum.example")
    assert isinstance(taken, Slot) != is_halted


RATES = [0.001, 0.2, 0.9, 1.0, 1.8, 5.0, 8.19, 9.95, 10.0, 24.2, 40.16, 99.99, 100.0, 180.0, 200.0, 1000.0]


@pytest.mark.parametrize("rate", RATES)
def test_the_latest_use_of_slots_keeps_every_second_within_the_contract(rate: float) -> None:
    late = tolerance(rate)
    assert 0.049 < late <= MAX_LATE_S
    # as many slots as fit into a second and the greatest lateness, as long again on the way
    assert math.ceil(rate * (1 + 2 * late) - 1e-9) <= 1.1 * rate + 1 + 1e-9


@pytest.mark.parametrize(
    ("rate", "seconds"), [(0.2, 0.25), (5.0, 0.1), (10.0, 0.1), (40.16, 0.0603), (200.0, 0.0525)]
)
def test_slow_sources_may_be_later(rate: float, seconds: float) -> None:
    assert tolerance(rate) == pytest.approx(seconds, abs=1e-3)
