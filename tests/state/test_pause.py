"""Why nothing goes out of any source: one decision, whoever asks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from crawlproject.state.calls import DeadLetter, Pause, Rejected, Settlement
from crawlproject.state.client import State
from tests.commands.conftest import Frontier, frontier
from tests.state.calls.calls import within

__all__ = ["frontier"]

LED = {"leader": "leader", "pulse": "leader"}
NO_WORKER = "no worker is running: scrapy crawl images"
FULL = "dead letters have reached CRAWL_STREAM_MAXLEN: retry or drop some (scrapy dead), or raise it"


async def asked(state: State) -> tuple[Pause, Pause]:
    """Return what an operator's command is told, and what the monitor reads."""
    overview = await within(state.scripts, dead_maxlen=2).collect(timeout=30, most=9)
    return await within(state.scripts, dead_maxlen=2).pause_reason(timeout=30), overview.pause


@pytest.mark.parametrize(
    ("keys", "dead", "kind", "reason"),
    [
        (LED, 0, "", ""),
        (LED, 1, "", ""),
        ({}, 0, "no pulse", NO_WORKER),
        ({"workers": "w"}, 0, "no pulse", "no worker leads"),
        ({"leader": "leader"}, 2, "no pulse", "the leader has not read the catalogue yet (see its log)"),
        (LED | {"paused": "full"}, 2, "paused", "full"),
        (LED, 2, "paused", FULL),
        (LED | {"counters": 3}, 0, "no worker", NO_WORKER),
        (LED | {"counters": 3, "workers": "w"}, 0, "no worker", NO_WORKER),  # it is silent
    ],
)  # fmt: skip
async def test_without_workers_the_reason_is_what_is_missing_first(
    state: State, keys: dict[str, Any], dead: int, kind: str, reason: str
) -> None:
    redis: Any = state.redis
    for name, value in keys.items():
        if name == "counters":
            await redis.hset(state.keys.counters, "outstanding", value)
        elif name == "workers":
            await redis.zadd(state.keys.workers, {value: 1})
        else:
            await redis.set(getattr(state.keys, name), value)
    for _ in range(dead):
        await redis.xadd(state.keys.dead, {"reason": "x"})
    assert await asked(state) == (Pause(kind, reason), Pause(kind, reason))


@pytest.mark.parametrize("paused", [None, "full"])
async def test_a_worker_that_leases_gets_the_same_reason(
    frontier: Frontier, state: State, paused: str | None
) -> None:
    if paused is None:
        await frontier.redis.delete(state.keys.pulse)
    else:
        await frontier.redis.set(state.keys.paused, paused)
    reply = await within(state.scripts, dead_maxlen=2).lease("w", 9, rooms={}, room=9, horizon=1.0)
    told, read = await asked(state)
    assert told == read == Pause(reply.state, reply.reason)
    assert reply.reason


async def refuse(frontier: Frontier, count: int, *, refusal: bool = True) -> None:
    """Have `count` requests become dead letters, because their site forbids them; at most three are kept."""
    await frontier.feed("museum", count)
    leases = [lease for _ in range(count) for lease in await frontier.lease(1)]
    done = Settlement("", "museum", b"\x01\x00\x00x", dead="no", refusal=refusal)
    await within(frontier.scripts, dead_maxlen=3).settle("w", [replace(done, id=lease) for lease in leases])


async def test_what_sites_forbid_pauses_nothing(frontier: Frontier, state: State) -> None:
    redis, keys = frontier.redis, state.keys
    await frontier.catalogue({"museum": 1000.0})
    await refuse(frontier, 5)
    assert await redis.xlen(keys.dead) == 3  # of many only the first are kept, and the others are counted
    assert await redis.hget(keys.totals, "refusals_not_kept") == b"2"
    assert await redis.hget(keys.counters, "outstanding") == b"0"
    assert await asked(state) == (Pause("", ""), Pause("", ""))
    await refuse(frontier, 1, refusal=False)
    assert await asked(state) == (Pause("", ""), Pause("", ""))
    await refuse(frontier, 1, refusal=False)
    assert [pause.reason for pause in await asked(state)] == [FULL, FULL]

    # what is taken out again is not counted any more, whichever it is
    letters = [DeadLetter(at.decode(), "museum") for at, _ in await redis.xrange(keys.dead)]
    await state.scripts.take_dead([letters[0], letters[3]])
    await state.scripts.take_dead([letters[0]])
    assert await redis.hget(keys.dead_sources, "") == b"2"
    assert await asked(state) == (Pause("", ""), Pause("", ""))
    await refuse(frontier, 1, refusal=False)
    assert [pause.reason for pause in await asked(state)] == [FULL, FULL]

    await redis.delete(keys.dead)  # behind our back
    await state.scripts.trim(frontier.fence, maxlen=9)
    assert not await redis.hexists(keys.dead_sources, "")


async def test_seeds_are_taken_while_only_refusals_are_at_the_bound(frontier: Frontier, state: State) -> None:
    await frontier.catalogue({"museum": 1000.0})
    await refuse(frontier, 3)

    for is_taken in (True, False):
        await frontier.redis.lpush(state.keys.seeds, "a")
        await state.scripts.take_seeds("w", 1)
        enqueued = await within(state.scripts, dead_maxlen=1).enqueue("w", [Rejected("no URL")], seeds=[b"a"])
        assert (enqueued is not None) is is_taken
