"""The shared clock: what happens to a crawl when Redis' own is set back or forward, or another host takes over.

Each score in Redis is moved against the server's clock, which to the scripts is the same as the clock moving.
benchmarks/politeness.py moves the clock itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from typing import Any

import pytest

from crawlproject import config
from crawlproject.frontier.codec import digest_of
from crawlproject.models import Lease
from crawlproject.politeness.slots import DOUBT_S, MAX_LATE_S, tolerance
from crawlproject.state.calls import NewRequest, Settlement
from crawlproject.state.client import State
from crawlproject.state.clock import MICROS
from tests.settings_of_functions import within
from tests.state.calls.calls import change_packed, packed_at
from tests.state.servers import Server
from tests.test_crawl import worst_second
from tests.waiting import PATIENCE_S, until_async

HOUR = 3600.0
SOURCES = {"fast": 100.0, "slow": 0.2}


def db(state: State) -> Any:
    return state.redis


async def set_clock(state: State, seconds: float) -> None:
    """Set Redis' clock forward by `seconds`, or back if negative: all that was noted lies so much further off."""
    keys, client, micros = state.keys, db(state), -seconds * MICROS
    sets = [keys.slots, keys.workers, *keys.due]
    for key in [*sets, *await client.keys(keys.delayed_of + "*")]:
        for member, score in await client.zrange(key, 0, -1, withscores=True):
            await client.zadd(key, {member: score + micros})
    for key in await client.keys(keys.circuit_of + "*"):
        circuit = await packed_at(client, key)
        moved = {name: circuit[name] + micros for name in ("ends", "hold", "slowed", "quiet") if circuit.get(name)}
        await change_packed(client, key, **moved)
    seen = float(await client.hget(keys.clock, "seen"))
    await client.hset(keys.clock, "seen", f"{seen + micros:.0f}")
    for key in await client.keys("*"):
        ttl = await client.pttl(key)
        if ttl > 0:
            if ttl - seconds * 1000 > 0:
                await client.pexpire(key, int(ttl - seconds * 1000))
            else:
                await client.delete(key)


async def begin(state: State) -> int:
    fence = await state.scripts.lead("leader", ready=True)
    assert fence is not None
    await state.scripts.set_rates(fence, [(name, rate, rate) for name, rate in SOURCES.items()], {})
    await state.scripts.heartbeat("w", join=True, timeout=30, max_deliveries=3)
    await state.scripts.heartbeat("v", join=True, timeout=30, max_deliveries=3)
    requests = [
        NewRequest(b"\x01\x00\x00x", digest_of("", str(number)), again=True, source=source)
        for source in SOURCES
        for number in range(1000)
    ]
    await within(state.scripts, dead_maxlen=9).enqueue("w", requests)
    return fence


async def lease(state: State, worker: str = "w") -> list[Lease]:
    reply = await within(state.scripts, dead_maxlen=9).lease(worker, 64, rooms={}, room=999, horizon=0.25)
    return reply.grants


async def crawl(state: State, seconds: float, slots: list[tuple[str, float]]) -> float:
    """Lease as a worker does, and note each slot on the clock of the wall; the leader beats beside.

    Return for how long this process stood still at most: a busy machine may hide what the clock did.
    """
    until, beat = time.monotonic() + seconds, 0.0
    before, still = time.monotonic(), 0.0
    while time.monotonic() < until:
        if time.monotonic() > beat:
            await state.scripts.lead("leader", ready=True)
            beat = time.monotonic() + 1
        for grant in await lease(state):
            sent = max(grant.slot, time.monotonic())
            if sent <= grant.slot + tolerance(grant.rate) and state.clock.permits(grant.slot):
                slots.append((grant.id.partition(":")[2], sent))
        await asyncio.sleep(0.05)
        before, still = time.monotonic(), max(still, time.monotonic() - before)
    return still


@pytest.mark.judges
async def test_sources_keep_their_rate_when_the_time_jumps(state: State, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    await begin(state)
    slots: list[tuple[str, float]] = []
    still = await crawl(state, 0.6, slots)
    began = time.monotonic()
    await set_clock(state, -2.0)
    stepped = time.monotonic()
    still = max(still, stepped - began, await crawl(state, DOUBT_S + 1, slots))
    for source, rate in SOURCES.items():
        times = [{"t": at} for name, at in slots if name == source]
        assert worst_second(times) <= 1.1 * rate + 1  # type: ignore[arg-type]
    while not any(at > stepped for name, at in slots if name == "fast"):
        await crawl(state, 0.1, slots)
    told = [record.message for record in caplog.records if "clocks of Redis" in record.message]
    said = r"differ by [+-]\d+\.\d{3} s more than before .*: nothing goes out for 1.75 s"
    assert all(re.search(said, line) for line in told)
    assert told or still > 1.0


@pytest.mark.parametrize("step", [-HOUR, HOUR])
async def test_no_worker_loses_its_leases_for_it(state: State, step: float) -> None:
    await begin(state)
    mine, other = await lease(state), await lease(state, "v")
    await set_clock(state, step)
    for _ in range(3):
        for worker in ("w", "v"):
            beat = await state.scripts.heartbeat(worker, join=False, timeout=30, max_deliveries=3)
            assert (beat.alive, beat.lost) == (True, None)
    assert await db(state).hlen(state.keys.leases_of + "w") == len(mine)
    assert await db(state).hlen(state.keys.leases_of + "v") == len(other)


async def test_one_that_is_dead_still_loses_them(state: State) -> None:
    await begin(state)
    leases = await lease(state)
    await set_clock(state, -HOUR)
    await state.scripts.lead("leader", ready=True)
    lost: list[object] = []

    async def is_lost() -> bool:
        beat = await state.scripts.heartbeat("v", join=False, timeout=1, max_deliveries=3)
        lost.extend(filter(None, [beat.lost]))
        await asyncio.sleep(0.2)
        return bool(lost)

    await until_async(is_lost)
    assert lost == [("w", len(leases), 0)]


async def test_holds_and_delays_last_as_long_as_they_should(state: State) -> None:
    fence = await begin(state)
    grants = [grant for grant in await lease(state) if grant.id.endswith(":fast")]
    await state.scripts.settle(
        "w",
        [
            Settlement(grants[0].id, "fast", b"\x01\x00\x00late", delay=1.5),
            Settlement(grants[1].id, "fast", b"\x01\x00\x00x", status="429", slows=True, hold=1.5, fine=False),
        ],
    )
    began = time.monotonic()
    await set_clock(state, -HOUR)
    while not any(grant.id.endswith(":fast") for grant in await lease(state)):
        await state.scripts.lead("leader", ready=True)
        await state.scripts.watch(fence)
        assert time.monotonic() - began < PATIENCE_S
        await asyncio.sleep(0.05)
    assert time.monotonic() - began > 1.2


async def test_a_leader_that_died_with_the_old_clock_is_replaced(state: State) -> None:
    first = await begin(state)
    await set_clock(state, -HOUR)
    assert await db(state).pttl(state.keys.leader) > HOUR * 900
    fence = await state.scripts.lead("another", ready=True)
    assert fence == first + 1
    assert await db(state).pttl(state.keys.pulse) <= 5000


async def test_slots_that_a_server_may_have_forgotten_are_not_given_out_again(server: Server) -> None:
    state = State(config.load({"REDIS_URL": server.url}), "images")
    await state.open()
    await begin(state)
    await lease(state)
    kept = server.append_only_file.stat().st_size
    forgotten = [grant.slot for grant in await until_async(lambda: lease(state))]
    server.kill()
    os.truncate(server.append_only_file, kept)
    server.start()
    again = [grant.slot for grant in await until_async(lambda: lease(state))]
    assert min(again) >= max(forgotten) + MAX_LATE_S
    await state.close()
