"""What holds a batch of seeds of a file back, and what does not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest_asyncio

from crawlproject import config
from crawlproject.frontier import seed_list
from crawlproject.ingest.feeds import why_held
from crawlproject.state.client import State
from tests.state.scripts.calls import db

MUSEUM, ARCHIVE = "http://img.museum.org/a.jpg", "http://archive.org/a.jpg"
NAMED = json.dumps({"url": ARCHIVE, "source": "museum"})


@pytest_asyncio.fixture
async def state(redis_url: str) -> AsyncIterator[State]:
    """A frontier in which up to ten seeds wait beyond their sources' shares."""
    one = State(config.load({"REDIS_URL": redis_url, "CRAWL_OVERFLOW_MAXLEN": 10}), "images")
    await one.open()
    await db(one).hset(one.keys.hosts, "museum.org", "museum")
    await db(one).hset(one.keys.catalogue, "museum", "5")
    yield one
    await one.close()


async def overflow(state: State, **sources: int) -> None:
    for source, count in sources.items():
        for number in range(count):
            await db(state).rpush(f"{state.keys.overflow_of}{number % 5}:{source}", "x")
    await db(state).hincrby(state.keys.counters, "overflow", sum(sources.values()))


async def reason(state: State, *seeds: str) -> str:
    return await why_held(state, seeds)


async def test_seeds_of_a_source_that_has_half_of_the_overflow_are_held_back(state: State) -> None:
    await overflow(state, museum=4)
    assert await reason(state, MUSEUM) == ""
    await overflow(state, museum=1)
    held = "museum has enough seeds waiting: see scrapy sources -- museum"
    assert await reason(state, MUSEUM, "nonsense") == held
    assert await reason(state, NAMED) == held
    assert await reason(state, ARCHIVE) == ""
    assert await reason(state, MUSEUM, ARCHIVE) == ""  # others' sake
    await overflow(state, **{"archive.org": 5})
    assert (await reason(state, MUSEUM, ARCHIVE)).startswith("archive.org and museum have enough seeds waiting")


async def test_no_source_is_held_back_when_many_have_a_little(state: State) -> None:
    await overflow(state, museum=4, other=4, third=2)
    assert await reason(state, MUSEUM) == ""


async def test_a_list_that_is_full_holds_everything_back(state: State) -> None:
    await db(state).lpush(state.keys.seeds, *["x"] * 100_001)
    assert (await reason(state, ARCHIVE)).endswith("or see scrapy stats (seeds_waiting, outstanding)")


async def test_what_to_look_at_names_the_spider_that_is_fed(state: State) -> None:
    pages = state.beside("pages")
    await overflow(pages, museum=5)
    assert (await reason(pages, MUSEUM)).endswith("see scrapy sources --spider=pages -- museum")
    await db(pages).lpush(pages.keys.seeds, *["x"] * 100_001)
    assert "see scrapy stats --spider=pages (" in await reason(pages, ARCHIVE)


async def test_with_overflows_at_their_bound_a_topic_has_no_room(state: State) -> None:
    await overflow(state, museum=9)
    assert await seed_list.has_room(state)
    await overflow(state, museum=1)
    assert not await seed_list.has_room(state)
