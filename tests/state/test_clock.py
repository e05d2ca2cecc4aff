"""What a worker knows of Redis' clock."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Callable

import pytest

from crawlproject.politeness.slots import HORIZON_S, tolerance
from crawlproject.state.clock import MICROS, RedisClock

AHEAD = 1_700_000_000.0  # what Redis' clock says more than ours, in seconds


def redis_time(local: float, ahead: float = AHEAD) -> int:
    return int((local + ahead) * MICROS)


def error(clock: RedisClock, now: float, ahead: float = AHEAD) -> float:
    """Return by how much later than it is a moment of Redis seems here."""
    return clock.local(redis_time(now, ahead)) - now


@pytest.mark.parametrize("ahead", [AHEAD, 0.0, -1000.0])
@pytest.mark.parametrize("way", [0.0, 0.0002, 0.03])
def test_a_moment_is_late_by_the_way_of_the_reply_and_never_early(ahead: float, way: float) -> None:
    clock = RedisClock()
    clock.observe(redis_time(100.0, ahead), 100.0 + way)
    assert error(clock, 105.0, ahead) == pytest.approx(way, abs=2e-6)


def test_the_quickest_reply_counts() -> None:
    """A reply that a busy reactor reads late must not move the slots that others wait for."""
    clock, chance = RedisClock(), random.Random(5)
    clock.observe(redis_time(100.0), 100.0 + 0.001)
    for number in range(300):
        sent = 100.0 + number * 0.01
        clock.observe(redis_time(sent), sent + 0.002 + chance.expovariate(2))
        assert error(clock, sent) == pytest.approx(0.001, abs=2e-6)


def test_the_best_reply_of_five_to_ten_seconds_counts() -> None:
    clock, seen = RedisClock(), []
    clock.observe(redis_time(100.0), 100.0 + 0.001)
    for number in range(1, 130):
        now = 100.0 + number * 0.1
        clock.observe(redis_time(now), now + 0.02)
        seen.append(round(error(clock, now), 4))
    changed = 100.0 + 0.1 * (1 + seen.index(0.02))
    assert 105.0 <= changed <= 110.2
    assert set(seen) == {0.001, 0.02}


@pytest.mark.parametrize(("step", "within"), [(3600.0, 0.2), (0.5, 25.2), (-0.5, 10.2), (-3600.0, 10.2)])
def test_after_a_step_of_redis_clock_it_is_right_again_in_time(step: float, within: float) -> None:
    clock = RedisClock()
    for number in range(100):
        now = 100.0 + number * 0.1
        clock.observe(redis_time(now), now + 0.001)
    begun = now = 110.0
    clock.observe(redis_time(now, AHEAD + step), now + 0.001)
    while now < begun + within:
        now += 0.1
        clock.observe(redis_time(now, AHEAD + step), now + 0.001)
    assert error(clock, now, AHEAD + step) == pytest.approx(0.001, abs=2e-6)


def most_in_a_second(rate: int, way: Callable[[float], float], ahead: Callable[[float], float]) -> int:
    """Return the most requests that a worker sends in a second, each when its slot comes or as late as allowed.

    Ten times a second it leases the slots of the next 250 ms; a reply takes `way` seconds.
    """
    clock, given, sent, late = RedisClock(), 0, [], tolerance(rate)
    for number in range(600):
        ran = 100.0 + number * 0.1
        redis_now = redis_time(ran, ahead(ran))
        clock.observe(redis_now, ran + way(ran))
        given = max(given, redis_now)
        while given <= redis_now + HORIZON_S * MICROS:
            moment = max(clock.local(given), ran + way(ran))
            sent.append(moment + late if moment // 1 % 2 else moment)  # now in time, now late
            given += MICROS // rate
    sent.sort()
    return max(bisect_left(sent, first + 1.0) - index for index, first in enumerate(sent))


@pytest.mark.parametrize("rate", [10, 50, 200])
@pytest.mark.parametrize("less", [0.0, 0.02, 0.2, 1.0])
def test_a_way_back_that_gets_shorter_brings_no_slots_together(rate: int, less: float) -> None:
    def way(now: float) -> float:
        return less + 0.001 if now < 120 or 140 < now < 155 else 0.001

    assert most_in_a_second(rate, way, lambda _: AHEAD) <= math.floor(1.1 * rate) + 1


@pytest.mark.parametrize("step", [0.2, 1.0, 2.9])
def test_a_small_step_of_redis_clock_forward_brings_no_slots_together(step: float) -> None:
    assert most_in_a_second(200, lambda _: 0.001, lambda now: AHEAD + step * (now >= 120)) <= 221


def test_drift_is_followed() -> None:
    clock, worst = RedisClock(), 0.0
    for number in range(6000):  # ten minutes, 100 millionths too fast or slow
        now = 100.0 + number * 0.1
        ahead = AHEAD + (now - 100.0) * 1e-4 * (1 if number < 3000 else -1)
        clock.observe(redis_time(now, ahead), now + 0.0005)
        if number not in range(3000, 3200):
            worst = max(worst, abs(error(clock, now, ahead)))
    assert worst < 0.003


def test_after_a_long_silence_only_what_is_new_counts() -> None:
    clock = RedisClock()
    clock.observe(redis_time(100.0), 100.0)
    clock.observe(redis_time(200.0, AHEAD - 5), 200.0)
    assert error(clock, 200.0, AHEAD - 5) == pytest.approx(0.0, abs=2e-6)
