"""How far files are fed, in the step that feeds them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from crawlproject import config
from crawlproject.errors import BadInput
from crawlproject.state.client import BlockingState
from crawlproject.state.feeds import Feed

KEY = "crawl:images:feed:f"


@pytest.fixture
def state(redis_url: str) -> Iterator[BlockingState]:
    with BlockingState.connect(config.load({"REDIS_URL": redis_url})) as one:
        yield one


def waiting(state: BlockingState) -> list[bytes]:
    """Return the seeds in the order in which they are read."""
    seeds: list[bytes] = state.redis.lrange(state.keys.seeds, 0, -1)  # type: ignore[assignment]
    return seeds[::-1]


def test_a_feed_is_resumed_behind_its_last_seeds(state: BlockingState) -> None:
    feed = Feed(state, "f", resume=True)
    assert feed.position == ""
    feed.push(["a", "b"], [0, 0], "2")
    feed.push(["c"], [0], "3")
    feed.push([], [], "end")
    assert waiting(state) == [b"a", b"b", b"c"]
    assert Feed(state, "f", resume=True).position == "end"
    assert Feed(state, "other", resume=True).position == ""
    assert Feed(state, "f", resume=False).position == ""
    assert Feed(state, "f", resume=True).position == ""
    assert 29 * 86_400 < int(str(state.redis.ttl(KEY))) <= 30 * 86_400


def test_a_call_whose_reply_was_lost_puts_nothing_twice(state: BlockingState) -> None:
    feed = Feed(state, "f", resume=False)
    feed.push(["a"], [0], "1")
    feed.push(["a"], [0], "1")
    assert waiting(state) == [b"a"]


@pytest.mark.parametrize("resume", [True, False])
def test_of_two_feeds_of_the_same_files_the_later_goes_on(state: BlockingState, resume: bool) -> None:
    first = Feed(state, "f", resume=False)
    first.push(["a"], [0], "1")
    second = Feed(state, "f", resume=resume)
    assert second.position == ("1" if resume else "")
    with pytest.raises(BadInput, match="another scrapy feed of the same files"):
        first.push(["b"], [0], "2")
    second.push(["b"], [0], "2")
    assert waiting(state) == [b"a", b"b"]


def test_a_seed_list_of_another_type_stops_it_and_puts_nothing(state: BlockingState) -> None:
    key = "images:start_urls"
    feed = Feed(state, "f", resume=False)
    feed.push(["a"], [0], "1")
    state.redis.delete(key)
    state.redis.set(key, "x")
    before = state.redis.keys("*")
    with pytest.raises(redis.ResponseError, match=f"WRONGTYPE {key} is a string"):
        feed.push(["b"], [0], "2")
    assert state.redis.keys("*") == before
