"""How far files are fed, in the step that feeds them."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from crawlproject.errors import BadInput
from crawlproject.state.client import State
from crawlproject.state.feeds import Feed
from tests.state.scripts.calls import db

KEY = "crawl:images:feed:f"


async def begun(state: State, name: str = "f", *, resume: bool = False) -> Feed:
    feed = Feed(state, name)
    await feed.begin(resume=resume)
    return feed


async def waiting(state: State) -> list[bytes]:
    """Return the seeds in the order in which they are read."""
    seeds: list[bytes] = await db(state).lrange(state.keys.seeds, 0, -1)
    return seeds[::-1]


async def test_a_feed_is_resumed_behind_its_last_seeds(state: State) -> None:
    feed = await begun(state, resume=True)
    assert feed.position == ""
    await feed.push(["a", "b"], [0, 0], "2")
    await feed.push(["c"], [0], "3")
    await feed.push([], [], "end")
    assert await waiting(state) == [b"a", b"b", b"c"]
    for name, resume, position in (("f", True, "end"), ("other", True, ""), ("f", False, ""), ("f", True, "")):
        assert (await begun(state, name, resume=resume)).position == position
    assert 29 * 86_400 < await db(state).ttl(KEY) <= 30 * 86_400


async def test_a_call_whose_reply_was_lost_puts_nothing_twice(state: State) -> None:
    feed = await begun(state)
    for _ in range(2):
        await feed.push(["a"], [0], "1")
    assert await waiting(state) == [b"a"]


@pytest.mark.parametrize("resume", [True, False])
async def test_of_two_feeds_of_the_same_files_the_later_goes_on(state: State, resume: bool) -> None:
    first = await begun(state)
    await first.push(["a"], [0], "1")
    second = await begun(state, resume=resume)
    assert second.position == ("1" if resume else "")
    with pytest.raises(BadInput, match="another scrapy feed of the same files"):
        await first.push(["b"], [0], "2")
    await second.push(["b"], [0], "2")
    assert await waiting(state) == [b"a", b"b"]


async def test_a_seed_list_of_another_type_stops_it_and_puts_nothing(state: State) -> None:
    key, there = "images:start_urls", db(state)
    feed = await begun(state)
    await feed.push(["a"], [0], "1")
    await there.delete(key)
    await there.set(key, "x")
    before: Any = await there.keys("*")
    with pytest.raises(redis.ResponseError, match=f"WRONGTYPE {key} is a string"):
        await feed.push(["b"], [0], "2")
    assert await there.keys("*") == before
