"""How far files are fed, in the step that feeds them."""

from __future__ import annotations

import pytest
import redis

from crawlproject.errors import BadInput
from crawlproject.ingest.feeds import Feed
from crawlproject.state.client import State
from tests.state.scripts.calls import db

KEY = "crawl:images:feed:f"


async def begun(state: State, name: str, *, resume: bool) -> Feed:
    feed = Feed(state, name)
    await feed.begin(resume=resume)
    return feed


async def push(feed: Feed, position: str, *seeds: str) -> None:
    await feed.push(seeds, position)


async def waiting(state: State) -> list[bytes]:
    """Return the seeds in the order in which they are read."""
    seeds: list[bytes] = await db(state).lrange(state.keys.seeds, 0, -1)
    return seeds[::-1]


async def test_a_feed_is_resumed_behind_its_last_seeds(state: State) -> None:
    feed = await begun(state, "f", resume=True)
    assert feed.position == ""
    await push(feed, "2", "a", "b")
    await push(feed, "3", "c")
    await push(feed, "end")
    assert await waiting(state) == [b"a", b"b", b"c"]
    assert (await begun(state, "f", resume=True)).position == "end"
    assert (await begun(state, "other", resume=True)).position == ""
    assert (await begun(state, "f", resume=False)).position == ""
    assert (await begun(state, "f", resume=True)).position == ""
    assert 29 * 86_400 < await db(state).ttl(KEY) <= 30 * 86_400


async def test_a_call_whose_reply_was_lost_puts_nothing_twice(state: State) -> None:
    feed = await begun(state, "f", resume=False)
    await push(feed, "1", "a")
    await push(feed, "1", "a")
    assert await waiting(state) == [b"a"]


@pytest.mark.parametrize("resume", [True, False])
async def test_of_two_feeds_of_the_same_files_the_later_goes_on(state: State, resume: bool) -> None:
    first = await begun(state, "f", resume=False)
    await push(first, "1", "a")
    second = await begun(state, "f", resume=resume)
    assert second.position == ("1" if resume else "")
    with pytest.raises(BadInput, match="another scrapy feed of the same files"):
        await push(first, "2", "b")
    await push(second, "2", "b")
    assert await waiting(state) == [b"a", b"b"]


async def test_a_seed_list_of_another_type_stops_it_and_puts_nothing(state: State) -> None:
    key = "images:start_urls"
    feed = await begun(state, "f", resume=False)
    await push(feed, "1", "a")
    await db(state).delete(key)
    await db(state).set(key, "x")
    before = await db(state).keys("*")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        await push(feed, "2", "b")
    assert await db(state).keys("*") == before
