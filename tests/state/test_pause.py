"""Why nothing goes out of any source: one decision, whoever asks."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from crawlproject.state.client import State
from crawlproject.state.scripts import Overview, Pause
from tests.commands.conftest import Frontier

LED = {"leader": "leader", "pulse": "leader"}
WORK = {"outstanding": 3}
FULL = "dead letters have reached CRAWL_DEAD_MAXLEN: retry or drop some (scrapy dead), or raise it"


@pytest_asyncio.fixture
async def frontier(state: State) -> Frontier:
    """A frontier with a leader and a worker."""
    one = Frontier(state)
    await one.start()
    return one


async def asked(state: State) -> tuple[Pause, Pause]:
    """Return what an operator's command is told, and what the monitor reads."""
    overview = await state.scripts.collect("x", must_lead=False, every=0, timeout=30, most=9, dead_maxlen=2)
    assert isinstance(overview, Overview)
    return await state.scripts.pause_reason(dead_maxlen=2, timeout=30), overview.pause


@pytest.mark.parametrize(
    ("keys", "dead", "kind", "reason"),
    [
        (LED, 0, "", ""),
        (LED, 1, "", ""),
        ({}, 0, "no pulse", "no worker leads"),
        ({"leader": "leader"}, 2, "no pulse", "the leader has not read the catalogue yet (see its log)"),
        (LED | {"paused": "full"}, 2, "paused", "full"),
        (LED, 2, "paused", FULL),
        (LED | WORK, 0, "no worker", "no worker is running: start one (scrapy crawl images)"),
    ],
)  # fmt: skip
async def test_without_workers_the_reason_is_what_is_missing_first(
    state: State, keys: dict[str, Any], dead: int, kind: str, reason: str
) -> None:
    redis: Any = state.redis
    for name, value in keys.items():
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
    reply = await state.scripts.lease(
        "w", 9, rooms={}, room=9, idle=True, horizon=1.0, dead_maxlen=2, max_deliveries=3
    )
    told, read = await asked(state)
    assert told == read == Pause(reply.state, reply.reason)
    assert reply.reason


async def test_a_silent_worker_runs_no_more(frontier: Frontier, state: State) -> None:
    await frontier.feed("museum", 1)
    assert await asked(state) == (Pause("", ""), Pause("", ""))
    await frontier.redis.zadd(state.keys.workers, {"w": 0})
    assert [pause.kind for pause in await asked(state)] == ["no worker"] * 2
