"""Processes that feed seeds are listed in Redis while they do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from crawlproject.ingest import feeders
from crawlproject.ingest.feeders import Feeder
from crawlproject.state.client import State
from crawlproject.state.scripts import Feeding, Overview
from tests.settings_of_functions import within
from tests.state.scripts.calls import db
from tests.waiting import until_async as until


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeders, "_EVERY_S", 0.02)


@asynccontextmanager
async def reporting(state: State) -> AsyncIterator[Feeder]:
    one = Feeder(state)
    await one.start()
    yield one
    await one.stop()


async def feeding(state: State) -> Feeding:
    overview = await within(state.scripts, dead_maxlen=9).collect("w", must_lead=False, timeout=30, most=9)
    assert isinstance(overview, Overview)
    return overview.feeding


async def test_what_all_of_them_have_left_is_added_up_while_they_feed(state: State) -> None:
    assert await feeding(state) == Feeding(0, 0)
    async with reporting(state) as one:
        one.left = 1000
        await until(lambda: _is(state, Feeding(1, 1000)))
        async with reporting(state) as other:
            await until(lambda: _is(state, Feeding(2, None)))  # it does not know
            other.left = 5
            await until(lambda: _is(state, Feeding(2, 1005)))
        await until(lambda: _is(state, Feeding(1, 1000)))
    assert await feeding(state) == Feeding(0, 0)
    assert not await db(state).exists(state.keys.feeders)


async def _is(state: State, expected: Feeding) -> bool:
    return await feeding(state) == expected


async def test_one_that_was_killed_is_forgotten(state: State) -> None:
    now = int((await db(state).time())[0])
    old = {"killed": f"{now - 11}:70", "ahead": f"{now + 1000}:7"}
    await db(state).hset(state.keys.feeders, mapping=old)
    assert await feeding(state) == Feeding(0, 0)
    async with reporting(state) as one:
        one.left = 3
        await until(lambda: _is(state, Feeding(1, 3)))
        assert 0 < await db(state).ttl(state.keys.feeders) <= 60


async def test_a_redis_that_takes_no_reports_disturbs_nobody(state: State) -> None:
    async with reporting(state) as one:
        await db(state).set(state.keys.feeders, "a string")
        await asyncio.sleep(0.1)
        await db(state).delete(state.keys.feeders)
        one.left = 7
        await until(lambda: _is(state, Feeding(1, 7)))
