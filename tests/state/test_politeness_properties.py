"""Slots and circuits against simple models, over random schedules, on the real scripts."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawlproject import config
from crawlproject.config import CircuitRules
from crawlproject.controls import order_clearing
from crawlproject.frontier.codec import digest_of
from crawlproject.models import Slot
from crawlproject.politeness.slots import LATE_S
from crawlproject.state.client import State
from crawlproject.state.scripts import Grant, NewRequest, Scripts, Settlement
from tests.settings_of_functions import within
from tests.state.scripts.calls import change_packed, packed_at

pytestmark = pytest.mark.slow

MUSEUM = "museum"
RULES = CircuitRules(samples=3, errors=0.5, open=3600, open_max=7200, probes=2, halt_after=7, halt_periods=2)
PROPERTY = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


def run(redis_url: str, play: Any) -> None:
    """Run `play(scripts, store)` on an empty Redis."""

    async def whole() -> None:
        state = State(config.load({"REDIS_URL": redis_url}), "images")
        await state.open()
        try:
            await state.redis.flushall()
            scripts = Scripts(state.redis, state.keys, state.clock, circuit=RULES.packed())
            fence = await scripts.lead("leader", ready=True)
            assert fence is not None
            await scripts.set_rates(fence, [(MUSEUM, 200.0, 200.0)], {})
            for worker in ("v", "w"):
                await scripts.heartbeat(worker, join=True, timeout=30, max_deliveries=3)
            work: Coroutine[Any, Any, None] = play(scripts, state, fence)
            await work
        finally:
            await state.close()

    asyncio.run(whole())


async def feed(scripts: Scripts, first: int, count: int) -> None:
    requests = [
        NewRequest(bytes((1, 0, 0)) + str(n).encode(), digest_of("", str(n)), again=True, source=MUSEUM)
        for n in range(first, first + count)
    ]
    await scripts.enqueue("w", requests)


async def lease(scripts: Scripts, want: int, worker: str = "w", horizon: float = 1e5) -> list[Grant]:
    reply = await within(scripts, dead_maxlen=10).lease(worker, want, rooms={}, room=10**6, horizon=horizon)
    return reply.grants


# The token bucket: a source's slots

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
    async def play(scripts: Scripts, state: State, fence: int) -> None:
        await feed(scripts, 0, 400)
        rate = 200.0
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
                        assert acquired.moment < asked + 1.5
                        given = [acquired]
                elif what == "renew":  # the last one of those whose moment has come
                    missed = next((slot for slot in reversed(slots) if slot.moment < asked), None)
                    renewed = missed and await scripts.renew(missed, within=0.5)
                    if missed and renewed:
                        slots.remove(missed)
                        given = [renewed]
                else:
                    grants = await lease(scripts, int(value), what)
                    given = [Slot(MUSEUM, grant.slot, grant.at, grant.rate, LATE_S) for grant in grants]
                for slot in given:
                    # Never in the past (but for what the two clocks differ in), and one interval from the last.
                    assert slot.moment >= asked - 0.02
                    if slots:
                        assert slot.at - slots[-1].at >= 1e6 / rate - 10
                    slots.append(slot)

    run(redis_url, play)


# The circuit

steps = st.lists(
    st.one_of(
        st.tuples(st.just("lease"), st.integers(1, 5)),
        st.tuples(st.sampled_from(["fine", "error", "none", "back"]), st.integers(0, 20)),
        st.tuples(st.sampled_from(["fine", "error"]), st.integers(0, 3)),
        st.tuples(
            st.sampled_from(["later"] * 8 + ["halt", "resume", "resume", "clear", "quiet", "quiet"]), st.just(0)
        ),
    ),
    min_size=50,  # left to itself, hypothesis writes short stories
    max_size=90,
)


@dataclass
class Model:
    """The circuit as its description says, without window (nothing expires here) and without time."""

    state: str = "closed"
    generation: int = 0
    run: int = 0  # errors in a row
    periods: int = 0  # open ones since the last success
    cleared: int = 0  # the generation of the last closing
    fine: int = 0
    errors: int = 0
    probing: int = 0
    passed: int = 0
    over: bool = False  # the open period is
    out: list[tuple[Grant, int]] = field(default_factory=list)

    def enter(self, state: str) -> None:
        self.state, self.generation = state, self.generation + 1
        self.probing = self.passed = 0
        self.over = False

    def close(self) -> None:
        self.enter("closed")
        self.run = self.periods = self.fine = self.errors = 0
        self.cleared = self.generation

    def room(self) -> float:
        if self.state == "open" and self.over:
            self.enter("half_open")
        if self.state == "half_open":
            return RULES.probes - self.probing - self.passed
        return math.inf if self.state == "closed" else 0

    def rest(self) -> None:
        """A day without results: only an untroubled circuit is forgotten."""
        self.fine = self.errors = 0
        if self.state == "open" and self.over:
            self.enter("half_open")
        if self.state == "closed":
            self.generation = self.run = self.cleared = 0

    def result(self, generation: int, what: str) -> None:
        current = generation == self.generation
        if what in {"none", "back"}:
            if current and self.state == "half_open":
                self.probing -= 1
            return
        if self.state == "halted" or generation < self.cleared:
            return
        self.run = 0 if what == "fine" else self.run + 1
        self.periods = 0 if what == "fine" else self.periods
        if current and self.state == "half_open":
            self.probing -= 1
            self.passed += what == "fine"
        if current and self.state != "open":
            self.fine += what == "fine"
            self.errors += what == "error"
        samples = self.fine + self.errors
        if self.run >= RULES.halt_after:
            self.enter("halted")
        elif not current or self.state == "open":
            return
        elif self.state == "half_open" and what == "error":
            self.trip()
        elif self.state == "half_open" and self.passed >= RULES.probes:
            self.close()
        elif self.state == "closed" and samples > RULES.samples and self.errors > RULES.errors * samples:
            self.trip()

    def trip(self) -> None:
        if self.periods >= RULES.halt_periods:
            self.enter("halted")
        else:
            self.periods += 1
            self.enter("open")


STATUS = {"fine": "200", "error": "500", "none": "200"}
FINE = {"fine": True, "error": False, "none": None}


@PROPERTY
@given(steps=steps)
def test_a_circuit_does_what_its_description_says(redis_url: str, steps: list[tuple[str, int]]) -> None:
    async def play(scripts: Scripts, state: State, fence: int) -> None:
        model, redis = Model(), state.redis
        await feed(scripts, 0, 400)
        for what, number in steps:
            if what == "lease":
                room = model.room()
                grants = await lease(scripts, number)
                assert len(grants) == min(number, room)
                model.probing += len(grants) if model.state == "half_open" else 0
                model.out += [(grant, model.generation) for grant in grants]
            elif what == "later" and model.state == "open":
                await change_packed(redis, state.keys.circuit_of + MUSEUM, ends=1)  # in place of waiting an hour
                model.over = True
            elif what == "halt" and model.state != "halted":
                await redis.sadd(state.keys.halted, MUSEUM)
                await scripts.watch(fence)
                model.enter("halted")
            elif what == "resume" and model.state == "halted":
                await redis.srem(state.keys.halted, MUSEUM)
                await scripts.watch(fence)
                model.close()
            elif what == "clear" and model.state not in {"closed", "halted"}:
                await order_clearing(state, [MUSEUM])
                await scripts.watch(fence)
                model.close()
            elif what == "quiet":
                for grant, generation in model.out:  # none is held for so long
                    await scripts.settle("w", [Settlement(grant.id, MUSEUM, grant.entry)])
                    model.result(generation, "back")
                model.out.clear()
                await redis.delete(state.keys.window_of + MUSEUM)
                for _ in range(2):
                    await scripts.watch(fence)
                if await redis.ttl(state.keys.circuit_of + MUSEUM) > 0:
                    await redis.delete(state.keys.circuit_of + MUSEUM)
                model.rest()
            elif what in {*FINE, "back"} and model.out:
                grant, generation = model.out.pop(number % len(model.out))
                one = Settlement(grant.id, MUSEUM, grant.entry)
                if what != "back":
                    one = Settlement(
                        grant.id, MUSEUM, event=("link_rot", "{}"), status=STATUS[what], fine=FINE[what]
                    )
                assert (await scripts.settle("w", [one])).settled == [True]
                model.result(generation, what)
            [status] = await scripts.inspect([MUSEUM])
            probing = (await packed_at(redis, state.keys.circuit_of + MUSEUM)).get("probing", 0)
            assert (status.state, status.generation, probing) == (model.state, model.generation, model.probing)
            assert await redis.sismember(state.keys.halted, MUSEUM) == (model.state == "halted")
            assert await redis.sismember(state.keys.temp_halted, MUSEUM) == (model.state == "open")

    run(redis_url, play)
