"""The Lua module `seen_filter`, by the script enqueue."""

from __future__ import annotations

import msgpack

from crawlproject import config
from crawlproject.frontier.codec import digest_of
from crawlproject.frontier.contents import seen_filter_fault
from crawlproject.state.calls import EnqueueReply, NewRequest, Scripts
from crawlproject.state.client import State
from tests.state.calls.calls import db, rule

URLS = [f"https://museum.org/{number}.jpg" for number in range(200)]


async def enqueue(state: State, urls: list[str]) -> EnqueueReply:
    entries = {url: b"\1\0\0" + msgpack.packb({"url": url}) for url in urls}
    requests = [
        NewRequest(entry, digest_of("", url), again=False, source="museum") for url, entry in entries.items()
    ]
    reply = await state.scripts.enqueue("w", requests)
    assert reply is not None
    return reply


async def opened(redis_url: str, spider: str = "images") -> State:
    """Open a crawl whose first generation is small."""
    state = State(config.load({"REDIS_URL": redis_url}), spider)
    await state.open()
    state.scripts = Scripts(state.redis, state.keys, state.clock, seen_capacity=1000)
    return state


async def test_an_exact_filter_grows_and_loses_nothing(state: State, redis_url: str) -> None:
    await rule(state)
    one = await opened(redis_url)
    urls = [f"https://museum.org/{number}" for number in range(8000)]
    batches = [urls[first : first + 500] for first in range(0, 8000, 500)]
    assert [(await enqueue(one, batch)).admitted for batch in batches] == [500] * 16
    meta = {b"generations": b"1000 4000 16000", b"count": b"3000"}
    assert await db(state).hgetall(one.keys.seen_meta) == meta
    assert [(await enqueue(one, batch)).duplicates for batch in batches] == [500] * 16
    assert await db(state).hgetall(one.keys.seen_meta) == meta
    buckets = await db(state).keys(one.keys.seen_of + "*")
    assert sum([await db(state).scard(bucket) for bucket in buckets]) == 8000
    assert {await db(state).object("encoding", bucket) for bucket in buckets} == {b"intset"}
    await one.close()


async def test_to_look_changes_nothing(state: State) -> None:
    assert await state.scripts.was_seen(digest_of("", "x")) is False
    assert await db(state).keys() == []


async def test_each_spider_has_its_own(state: State, redis_url: str) -> None:
    await rule(state)
    other = await opened(redis_url, "pages")
    assert (await enqueue(state, URLS)).admitted == 200
    assert (await enqueue(other, URLS)).admitted == 200
    assert await db(state).hget(other.keys.seen_meta, "generations") == b"1000"
    assert await db(state).hget(state.keys.seen_meta, "generations") == b"10000000"
    await other.close()


async def test_what_was_forgotten_is_new_in_whichever_generation_it_was(state: State, redis_url: str) -> None:
    await rule(state)
    one = await opened(redis_url)
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
