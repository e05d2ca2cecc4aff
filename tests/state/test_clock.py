"""What a worker knows of Redis' clock, and what it does while it is in doubt."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from crawlproject.politeness.slots import DOUBT_S, HORIZON_S, tolerance
from crawlproject.state import clock as module
from crawlproject.state.clock import MICROS, RedisClock

AHEAD = 1_700_000_000.0  # what Redis' clock says more than ours, in seconds


def redis_time(local: float, ahead: float = AHEAD) -> int:
    return int((local + ahead) * MICROS)


def answer(clock: RedisClock, now: float, way: float = 0.001, ahead: float = AHEAD) -> float:
    """Have a script run at `now`, whose call and reply take `way` seconds each."""
    return clock.observe(now - way, redis_time(now, ahead), now + way)


def error(clock: RedisClock, now: float, ahead: float = AHEAD) -> float:
    """Return by how much later than it is a moment of Redis seems here."""
    return clock.local(redis_time(now, ahead)) - now


@pytest.mark.parametrize(("ahead", "way"), [(AHEAD, 0.0), (AHEAD, 0.03), (-1000.0, 0.0002)])
def test_a_moment_is_late_by_the_way_of_the_reply_and_never_early(ahead: float, way: float) -> None:
    clock = RedisClock()
    answer(clock, 100.0, way, ahead)
    assert error(clock, 105.0, ahead) == pytest.approx(way, abs=2e-6)


def test_the_quickest_reply_counts() -> None:
    clock, chance = RedisClock(), random.Random(5)
    answer(clock, 100.0)
    for number in range(1, 100):
        now = 100.0 + number * 0.1
        clock.observe(now - 0.001, redis_time(now), now + 0.015 + chance.expovariate(2))
        assert 0.001 - 2e-6 <= error(clock, now) < 0.02


def test_drift_is_followed_without_doubt() -> None:
    clock, worst = RedisClock(), 0.0
    answer(clock, 99.9)
    for number in range(6000):  # ten minutes, 500 millionths too fast or slow
        now = 100.0 + number * 0.1
        ahead = AHEAD + (now - 100.0) * 5e-4 * (1 if number < 3000 else -1)
        if number == 3000:
            clock = RedisClock()
        moved = answer(clock, now, 0.0005, ahead)
        assert not moved
        worst = max(worst, abs(error(clock, now, ahead)))
    assert worst < 0.007


@pytest.mark.parametrize("step", [3600.0, 0.1, -0.1, -3600.0])
def test_a_step_raises_doubt_at_once_and_the_estimate_is_right_again(step: float) -> None:
    clock = RedisClock()
    for number in range(100):
        assert answer(clock, 100.0 + number * 0.1) == 0.0
    assert clock.permits(109.9)
    assert answer(clock, 110.0, ahead=AHEAD + step) == pytest.approx(step, abs=0.003)
    assert error(clock, 110.0, AHEAD + step) == pytest.approx(0.001, abs=2e-6)
    assert [clock.permits(110.0 + later) for later in (0.1, DOUBT_S - 0.1, DOUBT_S + 0.1)] == [False, False, True]
    assert answer(clock, 110.1, ahead=AHEAD + step) == 0.0


def test_a_shorter_way_raises_doubt_from_20_ms_on_however_it_comes_about() -> None:
    clock = RedisClock()
    ways = [0.1] * 20 + [0.085] * 20 + [0.07] * 20 + [0.03] + [0.025, 0.02, 0.015, 0.005]
    moved = [answer(clock, 100.0 + number * 0.1, way) for number, way in enumerate(ways)]
    assert [number for number, one in enumerate(moved) if one] == [60, 64]  # the last: 25 ms within a second


def test_a_longer_way_raises_none() -> None:
    clock = RedisClock()
    answer(clock, 100.0)
    assert not any(answer(clock, 100.0 + number * 0.1, 0.4) for number in range(1, 200))


def test_a_machine_that_was_suspended_sends_nothing_when_it_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    asleep = 0.0
    monkeypatch.setattr(module, "local_time", lambda: 100.0)
    monkeypatch.setattr(module, "uptime", lambda: 100.0 + asleep)
    clock = RedisClock()
    answer(clock, 100.0)
    assert clock.permits(100.1)
    asleep = 0.5  # its own clock has stood still
    assert [clock.permits(100.0 + later) for later in (0.1, DOUBT_S - 0.1, DOUBT_S + 0.1)] == [False, False, True]


# A crawl of two workers in simulated time: the shared clock as clock.lua keeps it, slots as slots.lua gives them.

TICK_S = 0.01
LENGTH_S = 60.0
JUMP_S = 20.36  # soon after even a rare source has had a request
Clock = Callable[[float], float]
Span = tuple[float, float]


class Worker:
    """A worker that leases ten times a second; its machine's clock stands still while it is suspended."""

    def __init__(self, suspends: tuple[float, float], began: float) -> None:
        self.clock = RedisClock()
        self.asleep = suspends
        self.leases_at = began
        self.waiting: list[float] = []  # slots, on its own clock
        self.sent: list[float] = []

    def local(self, now: float) -> float:
        begin, end = self.asleep
        return now - min(max(now - begin, 0.0), end - begin)


def crawl(monkeypatch: pytest.MonkeyPatch, rate: float, wall: Clock, suspend: Span) -> list[float]:
    """Return when requests go out: each as late as it may be until a clock jumps, then every other one."""
    workers = [Worker(suspend, 0.1), Worker(NEVER, 0.15), Worker(NEVER, 30.05)]
    seen = ahead = following = 0.0
    now, late = 0.0, tolerance(rate)
    one = workers[0]
    monkeypatch.setattr(module, "local_time", lambda: one.local(now))
    monkeypatch.setattr(module, "uptime", lambda: now)
    for worker in workers:
        worker.clock = RedisClock()
    workers[2].clock.doubt(30.05)  # as it joins others
    while (now := now + TICK_S) < LENGTH_S:
        for one in workers:
            if one.asleep[0] < now < one.asleep[1]:
                one.leases_at = now + 0.2  # it sends first
                continue
            here = one.local(now)
            is_late = now < JUMP_S + 0.6 or len(one.sent) % 2
            for slot in [slot for slot in one.waiting if slot + (late if is_late else 0.0) <= here]:
                one.waiting.remove(slot)
                if here <= slot + late + TICK_S and one.clock.permits(slot):
                    one.sent.append(now)
            if now < one.leases_at or one.clock.valid_from > here:
                continue
            one.leases_at = max(one.leases_at, now - 0.1) + 0.1
            server = wall(now)
            shared = max(server + ahead, seen)
            ahead, seen = max(shared - server, 0.0), shared
            one.clock.observe(here - 0.001, round(shared * MICROS), here + 0.001)
            if one.clock.valid_from > here:
                one.waiting.clear()
                continue
            while max(following, shared) <= shared + HORIZON_S:
                slot = max(following, shared)
                one.waiting.append(max(one.clock.local(round(slot * MICROS)), here + 0.001))
                following = slot + 1 / rate
    return sorted(moment for worker in workers for moment in worker.sent)


def worst_second(times: list[float]) -> int:
    return max(
        sum(first <= moment < first + 1 for moment in times[at : at + 400]) for at, first in enumerate(times)
    )


def stepped(step: float, begin: float = JUMP_S, lasts: float = math.inf) -> Clock:
    """Return a clock that is set by `step` seconds at `begin`, and back after a while."""
    return lambda now: AHEAD + now + step * (begin < now < begin + lasts)


def paused(length: float) -> Clock:
    return lambda now: AHEAD + now - min(max(now - JUMP_S, 0.0), length)


NEVER = (1e9, 1e9)
STEPS = [sign * size for size in (0.1, 2.0, 60.0) for sign in (1, -1)]
JUMPS: dict[str, tuple[Clock, Span]] = {
    **{f"{step:+g}": (stepped(step), NEVER) for step in STEPS},
    **{f"{step:+g} for {s} s": (stepped(step, lasts=s), NEVER) for step in STEPS for s in (1, 12)},
    **{f"suspended for {s} s": (stepped(0), (JUMP_S, JUMP_S + s)) for s in (0.5, 5.5)},
    **{f"Redis paused for {s} s": (paused(s), NEVER) for s in (0.5, 5.5)},
    "as the third worker starts": (stepped(2.0, begin=30.02), NEVER),
}


@pytest.mark.parametrize("name", JUMPS)
def test_no_second_is_over_whichever_clock_jumps(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for rate in (0.2, 1.0, 40.0):
        times = crawl(monkeypatch, rate, *JUMPS[name])
        assert worst_second(times) <= math.floor(1.1 * rate + 1 + 1e-9), rate
    if " for " not in name:
        assert len(times) >= 0.95 * rate * (LENGTH_S - times[0])
