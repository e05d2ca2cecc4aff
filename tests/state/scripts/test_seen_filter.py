"""The Lua module `seen_filter`, by enqueue.lua and by a function that does nothing else."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
import redis

from crawlproject import config
from crawlproject.frontier.codec import digest_of
from crawlproject.frontier.contents import seen_filter_fault
from crawlproject.state.client import State
from crawlproject.state.scripts import EnqueueReply, NewRequest, Scripts
from tests.settings_of_functions import within
from tests.state.scripts.calls import db, entry, rule
from tests.state.scripts.marking import KEYS, Marks, digests

URLS = [f"https://museum.org/{number}.jpg" for number in range(200)]


def meta(client: Any) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in client.hgetall(KEYS.seen_meta).items()}


def mark_all(filter_: Marks, seed: str, count: int, **how: Any) -> tuple[int, int]:
    """Mark so many requests, the same ones for a seed; return how many were new, and how many known."""
    replies = [filter_.call(some, **how) for some in digests(seed, count)]
    return sum(new for new, _ in replies), sum(known for _, known in replies)


@pytest.fixture
def client(redis_url: str) -> Any:
    with redis.Redis.from_url(redis_url) as found:
        yield found


async def enqueue(state: State, urls: list[str], **more: Any) -> EnqueueReply:
    requests = [
        NewRequest(
            b"\1\0\0" + msgpack.packb({"url": url}),
            digest_of("", url),
            **{"again": False, "source": "museum", **more},
        )
        for url in urls
    ]
    reply = await state.scripts.enqueue("w", requests)
    assert reply is not None
    return reply


async def opened(redis_url: str, spider: str = "images", capacity: int = 10_000_000, **settings: Any) -> State:
    state = State(config.load({"REDIS_URL": redis_url, **settings}), spider)
    await state.open()
    state.scripts = Scripts(state.redis, state.keys, state.clock, seen_capacity=capacity)
    return state


# The layouts


def test_an_exact_filter_grows_and_loses_nothing(client: Any) -> None:
    exact = Marks(client, 1000)
    assert mark_all(exact, "ours", 8000) == (8000, 0)
    assert meta(client) == {"generations": "1000 4000 16000", "count": "3000"}
    assert mark_all(exact, "ours", 8000) == (0, 8000)
    assert meta(client)["count"] == "3000"
    assert mark_all(exact, "others", 2000, what="look") == (2000, 0)
    buckets = client.keys(KEYS.seen_of + "*")
    assert sum(client.scard(bucket) for bucket in buckets) == 8000
    assert {client.object("encoding", bucket) for bucket in buckets} == {b"intset"}
    smallest = max(buckets, key=client.scard)
    assert client.memory_usage(smallest) < 130 + 5 * client.scard(smallest)


async def test_what_was_refused_is_not_seen(state: State) -> None:
    await rule(state)
    reply = await within(state.scripts, high_water=99, dead_maxlen=99, refuse_unknown=True).enqueue(
        "w", [NewRequest(entry("x"), digest_of("", "x"), again=False, source="nobody")]
    )
    assert reply is not None
    assert reply.dead == 1
    assert (await enqueue(state, URLS)).admitted == 200
    assert (await enqueue(state, URLS)).duplicates == 200
    assert await db(state).hgetall(state.keys.seen_meta) == {b"generations": b"10000000", b"count": b"200"}


async def test_to_look_changes_nothing(state: State) -> None:
    assert await state.scripts.was_seen(digest_of("", "x")) is False
    assert await db(state).keys() == []


# In a crawl


async def test_each_spider_has_its_own(state: State, redis_url: str) -> None:
    await rule(state)
    other = await opened(redis_url, "pages", capacity=1000)
    assert (await enqueue(state, URLS)).admitted == 200
    assert (await enqueue(other, URLS)).admitted == 200
    assert await db(state).hget(other.keys.seen_meta, "generations") == b"1000"
    assert await db(state).hget(state.keys.seen_meta, "generations") == b"10000000"
    await other.close()


async def test_what_was_forgotten_is_new_in_whichever_generation_it_was(state: State, redis_url: str) -> None:
    await rule(state)
    one = await opened(redis_url, capacity=1000)
    urls = [f"https://museum.org/{number}" for number in range(1100)]
    for first in range(0, 1100, 100):
        await enqueue(one, urls[first : first + 100])
    assert await db(state).hmget(one.keys.seen_meta, "generations", "count") == [b"1000 4000", b"100"]
    assert await one.scripts.drop_all("museum", "purged") == 1100
    assert await db(state).hget(one.keys.seen_meta, "count") == b"0"
    assert (await enqueue(one, urls[:100] + urls[-100:])).admitted == 200
    await one.close()


async def test_the_log_warns_of_a_redis_that_keeps_only_smaller_sets_small(state: State) -> None:
    await db(state).config_set("set-max-intset-entries", 128)
    try:
        warning = await seen_filter_fault(state)
    finally:
        await db(state).config_set("set-max-intset-entries", 512)
    assert warning is not None
    assert warning.startswith("set-max-intset-entries of this Redis is 128: ")
