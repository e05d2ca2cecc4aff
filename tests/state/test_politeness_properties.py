"""Slots against a simple model, over random schedules, on the real scripts."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawlproject.models import Slot
from crawlproject.politeness.slots import LATE_S
from crawlproject.state.client import State
from tests.state.calls.calls import entry, join, put, rule
from tests.state.servers import opened

pytestmark = pytest.mark.slow

MUSEUM = "museum"
PROPERTY = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


async def begin(redis_url: str) -> tuple[State, int]:
    """Open a crawl of two workers and 400 requests of a source of 200 a second; return the fence."""
    state = await opened(redis_url)
    await state.redis.flushall()
    fence = await rule(state, (MUSEUM, 200.0))
    for worker in ("v", "w"):
        await join(state, worker)
    await put(state, [entry(str(number)) for number in range(400)])
    return state, fence


Move = tuple[str, float]
moves = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["v", "w"]), st.integers(1, 12).map(float)),
        st.tuples(st.just("acquire"), st.just(0.0)),
        st.tuples(st.just("renew"), st.just(0.0)),
        st.tuples(st.just("sleep"), st.floats(0, 0.03)),
        st.tuples(st.just("rate"), st.sampled_from([0.2, 1.0, 7.5, 50.0, 200.0])),
    ),
    min_size=12,
    max_size=25,
)


@PROPERTY
@given(moves=moves)
@pytest.mark.judges
def test_slots_keep_their_distance_whoever_requests_them_and_when(redis_url: str, moves: list[Move]) -> None:
    async def play() -> None:
        state, fence = await begin(redis_url)
        scripts, rate = state.scripts, 200.0
        slots: list[Slot] = []
        for what, value in moves:
            asked = asyncio.get_running_loop().time()
            if what == "sleep":
                await asyncio.sleep(value)
            elif what == "rate":
                rate = value
                await scripts.set_rates(fence, [(MUSEUM, rate, rate)], {})
            else:
                given: list[Slot] = []
                if what == "acquire":
                    acquired, _ = await scripts.acquire(source=MUSEUM)
                    if acquired is not None:  # else it would be more than a second ahead
                        assert acquired.moment < asyncio.get_running_loop().time() + 1.5
                        given = [acquired]
                elif what == "renew":  # the last one of those whose moment has come
                    missed = next((slot for slot in reversed(slots) if slot.moment < asked), None)
                    renewed = missed and await scripts.renew(missed, within=0.5)
                    if missed and renewed:
                        slots.remove(missed)
                        given = [renewed]
                else:
                    reply = await scripts.lease(what, int(value), rooms={}, room=10**6, horizon=1e5)
                    given = [Slot(MUSEUM, grant.slot, grant.at, grant.rate, LATE_S) for grant in reply.grants]
                for slot in given:
                    # Never in the past (but for what the two clocks differ in), and one interval from the last.
                    assert slot.moment >= asked - 0.02
                    if slots:
                        assert slot.at - slots[-1].at >= 1e6 / rate - 10
                    slots.append(slot)

        await state.close()

    asyncio.run(play())
