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

import pytest

from crawlproject.models import Lease
from crawlproject.politeness.slots import DOUBT_S, MAX_LATE_S
from crawlproject.state.client import State
from crawlproject.state.clock import MICROS
from tests.state.calls.calls import change_packed, db, entry, join, packed_at, put, settle, source_of
from tests.state.servers import Server, opened
from tests.waiting import PATIENCE_S, until_async

HOUR = 3600.0
SOURCES = {"fast": 100.0, "slow": 0.2}


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
    """Have two workers, and two sources with work; return the fence."""
    fence = await state.scripts.lead("leader", ready=True)
    assert fence is not None
    await state.scripts.set_rates(fence, [(name, rate, rate) for name, rate in SOURCES.items()], {})
    for worker in ("w", "v"):
        await join(state, worker)
    for source in SOURCES:
        await put(state, [entry(str(number)) for number in range(1000)], source)
    return fence


async def lease(state: State, worker: str = "w") -> list[Lease]:
    return (await state.scripts.lease(worker, 64, rooms={}, room=999, horizon=0.25)).grants


async def test_a_worker_that_sees_the_time_jump_says_so_and_sends_nothing_for_a_while(
    state: State, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    await begin(state)
    await lease(state)
    await set_clock(state, -2.0)
    jumped = time.monotonic()
    await lease(state)
    assert not state.clock.permits(jumped + DOUBT_S - 0.1)
    assert re.search(
        r"clocks of Redis .* differ by \+\d+\.\d{3} s more than before .*: nothing goes out", caplog.text
    )


@pytest.mark.parametrize("step", [-HOUR, HOUR])
async def test_no_worker_loses_its_leases_for_it(state: State, step: float) -> None:
    await begin(state)
    mine, other = await lease(state), await lease(state, "v")
    await set_clock(state, step)
    for _ in range(3):
        for worker in ("w", "v"):
            beat = await state.scripts.heartbeat(worker, join=False, timeout=30, max_deliveries=3)
            assert (beat.alive, beat.lost) == (2, None)
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
    late, held, *_ = [grant for grant in await lease(state) if source_of(grant) == "fast"]
    await settle(state, late, entry=entry("late"), delay=1.5)
    await settle(state, held, entry=entry("x"), status="429", slows=True, hold=1.5, fine=False)
    began = time.monotonic()
    await set_clock(state, -HOUR)
    while not any(source_of(grant) == "fast" for grant in await lease(state)):
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
    state = await opened(server.url)
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
