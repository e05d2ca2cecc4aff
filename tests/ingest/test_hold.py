"""What holds a batch of seeds of a file back, and what does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from crawlproject import config
from crawlproject.ingest.hold import Hold
from crawlproject.state import seed_list
from crawlproject.state.client import BlockingState
from crawlproject.state.keys import Keys

MUSEUM, ARCHIVE = "http://img.museum.org/a.jpg", "http://archive.org/a.jpg"
NAMED = json.dumps({"url": ARCHIVE, "source": "museum"})


@pytest.fixture
def state(redis_url: str) -> Iterator[BlockingState]:
    """A frontier in which up to ten seeds wait beyond their sources' shares."""
    one = BlockingState.connect(config.load({"REDIS_URL": redis_url, "CRAWL_OVERFLOW_MAXLEN": 10}), "images")
    one.redis.hset(one.keys.hosts, "museum.org", "museum")
    one.redis.hset(one.keys.limits, "museum", "5")
    yield one
    one.redis.close()


def overflow(state: BlockingState, **sources: int) -> None:
    redis: Any = state.redis
    for source, count in sources.items():
        for number in range(count):
            redis.rpush(f"{state.keys.overflow_of}{number % 5}:{source}", "x")
    redis.incrby(state.keys.overflow, sum(sources.values()))


def reason(state: BlockingState, *seeds: str) -> str:
    return Hold(state, seeds).reason()


def test_seeds_of_a_source_that_has_half_of_the_overflow_are_held_back(state: BlockingState) -> None:
    overflow(state, museum=4)
    assert reason(state, MUSEUM) == ""
    overflow(state, museum=1)
    held = "museum has enough seeds waiting: see scrapy sources -- museum"
    assert reason(state, MUSEUM, "nonsense") == held
    assert reason(state, NAMED) == held
    assert reason(state, ARCHIVE) == ""
    assert reason(state, MUSEUM, ARCHIVE) == ""  # others' sake
    overflow(state, **{"archive.org": 5})
    assert reason(state, MUSEUM, ARCHIVE).startswith("archive.org and museum have enough seeds waiting")


def test_no_source_is_held_back_when_many_have_a_little(state: BlockingState) -> None:
    overflow(state, museum=4, other=4, third=2)
    assert reason(state, MUSEUM) == ""


def test_a_list_that_is_full_holds_everything_back(state: BlockingState) -> None:
    state.redis.lpush(state.keys.seeds, *["x"] * 100_001)
    assert reason(state, ARCHIVE).endswith("or see scrapy stats (seeds_waiting, outstanding)")


def test_what_to_look_at_names_the_spider_that_is_fed(state: BlockingState) -> None:
    pages = replace(state, keys=Keys(state.keys.namespace, "pages"))
    overflow(pages, museum=5)
    assert reason(pages, MUSEUM).endswith("see scrapy sources --spider=pages -- museum")
    pages.redis.lpush(pages.keys.seeds, *["x"] * 100_001)
    assert "see scrapy stats --spider=pages (" in reason(pages, ARCHIVE)


def test_with_overflows_at_their_bound_a_topic_has_no_room(state: BlockingState) -> None:
    overflow(state, museum=9)
    assert seed_list.has_room(state)
    overflow(state, museum=1)
    assert not seed_list.has_room(state)
