"""preludes/seen_filter.lua, by enqueue.lua and by a script that does nothing else."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from benchmarks.redis_servers import Server
from crawlproject import config
from crawlproject.config import SeenRules
from crawlproject.frontier.dupefilter import digest_of
from crawlproject.frontier.seen import seen_filter_notes
from crawlproject.state.client import State
from crawlproject.state.scripts import EnqueueReply, NewRequest, Scripts
from tests.state.scripts.calls import db, entry, rule
from tests.state.scripts.marking import KEYS, Marks, digests

URLS = [f"https://museum.org/{number}.jpg" for number in range(200)]
SINGLE = 32  # bytes of a digest


def marks(client: Any, capacity: int, rate: float = 0.0) -> Marks:
    return Marks(client, SeenRules(capacity, rate))


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
        NewRequest(entry("x"), digest_of("", url), **{"again": False, "source": "museum", **more}) for url in urls
    ]
    reply = await state.scripts.enqueue("w", requests, high_water=10**6, dead_maxlen=10**6, refuse_unknown=False)
    assert reply is not None
    return reply


async def opened(redis_url: str, spider: str = "images", capacity: int = 10_000_000, **settings: Any) -> State:
    state = State(config.load({"REDIS_URL": redis_url, **settings}), spider)
    await state.open()
    seen = replace(state.bounds.seen, seen_capacity=capacity)
    state.scripts = Scripts(state.redis, state.keys, state.clock, seen=seen)
    return state


# The layouts


def test_an_exact_filter_grows_and_loses_nothing(client: Any) -> None:
    exact = marks(client, 1000)
    assert mark_all(exact, "ours", 8000) == (8000, 0)
    assert meta(client) == {"exact": "1000 4000 16000", "exact_count": "3000"}
    assert mark_all(exact, "ours", 8000) == (0, 8000)
    assert meta(client)["exact_count"] == "3000"
    assert mark_all(exact, "others", 2000, what="look") == (2000, 0)
    buckets = client.keys(KEYS.seen_of + "*")
    assert sum(client.scard(bucket) for bucket in buckets) == 8000
    assert {client.object("encoding", bucket) for bucket in buckets} == {b"intset"}
    smallest = max(buckets, key=client.scard)
    assert client.memory_usage(smallest) < 130 + 5 * client.scard(smallest)


def test_sets_beyond_what_redis_keeps_small_are_as_exact(client: Any) -> None:
    client.config_set("set-max-intset-entries", 64)
    try:
        exact = marks(client, 4000)
        assert mark_all(exact, "ours", 4000) == (4000, 0)
        assert b"hashtable" in {client.object("encoding", key) for key in client.keys(KEYS.seen_of + "*")}
        assert mark_all(exact, "ours", 4000) == (0, 4000)
    finally:
        client.config_set("set-max-intset-entries", 512)


@pytest.mark.parametrize("rate", [0.02, 0.001])
def test_bloom_filters_keep_to_their_rate_while_they_grow_and_know_all_that_they_had(
    client: Any, rate: float
) -> None:
    """Three generations are full: the rate of their false positives is the sum of a half, a quarter and an eighth.

    Less, because the number of blocks is rounded up.
    """
    bloom = marks(client, 1500, rate)
    count = 31_500
    _, lost = mark_all(bloom, "ours", count)
    generations = [word.split("/") for word in meta(client)["bloom"].split()]
    assert [float(word[0]) for word in generations[:3]] == [1500, 6000, 24_000]
    assert [float(word[3]) for word in generations[:3]] == [rate / 2, rate / 4, rate / 8]
    assert lost / count < rate
    assert mark_all(bloom, "ours", count) == (0, count)
    _, false = mark_all(bloom, "others", 50_000, what="look")
    assert rate / 8 < false / 50_000 < rate  # the digests are always the same
    assert {client.type(key) for key in client.keys(KEYS.seen_bloom_of + "*")} == {b"string"}
    assert not client.keys(KEYS.seen_of + "*")


def test_a_partition_of_a_bloom_filter_has_its_whole_size_at_once(client: Any) -> None:
    bloom = marks(client, 1_000_000, 0.01)
    assert bloom.call(random.Random(1).randbytes(SINGLE)) == (1, 0)
    (key,) = client.keys(KEYS.seen_bloom_of + "*")
    assert client.strlen(key) == 64 * int(meta(client)["bloom"].split("/")[1])


def test_a_seed_is_never_lost_to_a_bloom_filter(client: Any) -> None:
    """Even one whose bits are all set; and a link that was a seed is known."""
    bloom = marks(client, 1000, 0.1)
    mark_all(bloom, "links", 5000)
    _, false = mark_all(bloom, "seeds", 20_000, what="look")
    assert false > 0
    assert mark_all(bloom, "seeds", 20_000, is_link=False) == (20_000, 0)
    assert mark_all(bloom, "seeds", 20_000, is_link=True) == (0, 20_000)
    assert mark_all(bloom, "seeds", 20_000, is_link=False) == (0, 20_000)


def test_a_change_of_settings_loses_nothing_that_was_seen(client: Any) -> None:
    first, second = marks(client, 1000), marks(client, 2000, 0.001)
    assert mark_all(first, "a", 1500) == (1500, 0)
    assert mark_all(second, "a", 1500) == (0, 1500)
    new, _ = mark_all(second, "b", 3000)
    assert new > 2970
    assert meta(client)["exact"] == "1000 4000"
    assert meta(client)["bloom"].startswith("2000/")
    assert mark_all(first, "a", 1500) == (0, 1500)
    assert mark_all(first, "b", 3000) == (0, 3000)
    new, _ = mark_all(first, "c", 5000)
    assert new > 4950
    assert mark_all(second, "c", 5000) == (0, 5000)
    larger = marks(client, 10**6)
    mark_all(larger, "d", 15_000, is_link=False)
    assert meta(client)["exact"] == "1000 4000 16000 1000000"


async def test_a_new_crawl_has_an_exact_filter_even_when_its_first_seeds_are_refused(state: State) -> None:
    await rule(state)
    reply = await state.scripts.enqueue(
        "w",
        [NewRequest(entry("x"), digest_of("", "x"), again=False, source="nobody")],
        high_water=99,
        dead_maxlen=99,
        refuse_unknown=True,
    )
    assert reply is not None
    assert reply.dead == 1
    assert (await enqueue(state, URLS)).admitted == 200
    assert (await enqueue(state, URLS)).duplicates == 200
    assert await db(state).hgetall(state.keys.seen_meta) == {b"exact": b"10000000", b"exact_count": b"200"}
    assert await db(state).keys(state.keys.seen_of + "[0-9a-f]" * 5) == []


async def test_to_look_changes_nothing(state: State) -> None:
    assert await state.scripts.was_seen(digest_of("", "x")) == ""
    assert await db(state).keys() == []


# In a crawl


async def test_each_spider_has_its_own(state: State, redis_url: str) -> None:
    await rule(state)
    other = await opened(redis_url, "pages", capacity=1000)
    assert (await enqueue(state, URLS)).admitted == 200
    assert (await enqueue(other, URLS)).admitted == 200
    assert await db(state).hget(other.keys.seen_meta, "exact") == b"1000"
    assert await db(state).hget(state.keys.seen_meta, "exact") == b"10000000"
    await other.close()


async def test_links_go_to_the_bloom_filter_and_seeds_do_not(state: State, redis_url: str) -> None:
    await rule(state)
    one = await opened(redis_url, capacity=10_000, CRAWL_SEEN_LINKS="bloom:0.0001")
    assert (await enqueue(one, URLS[:100], found=True)).admitted == 100
    assert (await enqueue(one, URLS[:100], found=True)).duplicates == 100
    assert await db(state).keys(state.keys.seen_of + "*") == []
    assert await one.scripts.was_seen(digest_of("", URLS[0])) == "bloom"
    assert (await enqueue(one, URLS)).admitted == 200  # as seeds
    assert (await enqueue(one, URLS)).duplicates == 200
    assert (await enqueue(one, URLS, found=True)).duplicates == 200
    assert await one.scripts.was_seen(digest_of("", URLS[0])) == "exact"
    await one.close()


async def test_what_was_forgotten_is_new_in_whichever_generation_it_was(state: State, redis_url: str) -> None:
    await rule(state)
    one = await opened(redis_url, capacity=1000)
    urls = [f"https://museum.org/{number}" for number in range(1100)]
    for first in range(0, 1100, 100):
        await enqueue(one, urls[first : first + 100])
    assert await db(state).hmget(one.keys.seen_meta, "exact", "exact_count") == [b"1000 4000", b"100"]
    gone = [urls[0], urls[-1]]
    await db(state).rpush(one.keys.dropped, "a", "b")
    assert await one.scripts.forget_dropped([b"a", b"b"], [digest_of("", url) for url in gone])
    assert await db(state).hget(one.keys.seen_meta, "exact_count") == b"99"
    assert (await enqueue(one, urls[:100] + urls[-100:])).admitted == 2
    await one.close()


async def test_the_death_of_redis_while_the_filter_grows_loses_nothing_that_was_admitted(tmp_path: Path) -> None:
    server = Server(tmp_path, appendfsync="always")
    try:
        admitted: list[str] = []
        chance = random.Random(7)
        for death in range(3):
            state = await opened(server.url, capacity=1000, CRAWL_SEEN_LINKS="bloom:0.001", CRAWL_NAMESPACE="c")
            await rule(state)
            # Up to within the generation after the one of which there is one now
            count = [1150, 4300, 8000][death]
            while len(admitted) < count:
                some = [f"https://museum.org/{death}/{len(admitted)}/{n}" for n in range(chance.randrange(1, 120))]
                reply = await enqueue(state, some)
                assert reply.admitted == len(some)
                admitted += some
            server.kill()
            server.start()
            for first in range(0, len(admitted), 500):
                again = await enqueue(state, admitted[first : first + 500])
                assert again.admitted == 0
            await state.close()
        kept = server.client.hgetall("c:images:seen_meta")
        assert kept[b"exact"] == b"1000 4000 16000"
        assert int(kept[b"exact_count"]) == len(admitted) - 5000
    finally:
        server.close()


# What the log says of it


async def test_the_log_says_which_settings_hold(state: State, redis_url: str) -> None:
    await rule(state)
    assert await seen_filter_notes(state) == (
        "Seen filter: not begun; exact, for 10000000 requests at first",
        [],
    )
    await enqueue(state, URLS)
    said, warnings = await seen_filter_notes(state)
    assert (said, warnings) == ("Seen filter: exact, generation 1 with 200 of 10000000", [])
    one = await opened(redis_url, capacity=20_000_000, CRAWL_SEEN_LINKS="bloom:0.01")
    said, warnings = await seen_filter_notes(one)
    assert said.endswith("; new links in Bloom filters (CRAWL_SEEN_LINKS=bloom:0.01)")
    await enqueue(one, [*URLS[:1], "https://museum.org/link"], found=True)
    said, warnings = await seen_filter_notes(one)
    assert "links in Bloom filters, generation 1 with 1 of 20000000" in said
    assert warnings == []
    await one.close()
    other = await opened(redis_url, CRAWL_SEEN_LINKS="bloom:0.001")
    _, warnings = await seen_filter_notes(other)
    assert warnings == [
        "CRAWL_SEEN_LINKS=bloom:0.001 holds from the next Bloom filter on; the present one was made for bloom:0.01"
    ]
    await other.close()
    _, warnings = await seen_filter_notes(state)
    assert warnings[0].startswith("CRAWL_SEEN_LINKS=exact: new links are kept exactly from now on")


async def test_the_log_warns_of_a_redis_that_keeps_only_smaller_sets_small(state: State) -> None:
    await db(state).config_set("set-max-intset-entries", 128)
    try:
        _, (warning,) = await seen_filter_notes(state)
    finally:
        await db(state).config_set("set-max-intset-entries", 512)
    assert warning.startswith("set-max-intset-entries of this Redis is 128: ")


@pytest.mark.parametrize("value", [b"", b" ", b"\xff\n", b"x/y z", b"9" * 400, b"1/2/3/nan", b"10000000"])
async def test_whatever_stands_in_seen_meta_a_worker_starts(state: State, value: bytes) -> None:
    for rate in (0.0, 0.01):
        one = State(replace(state.config, seen_links=f"bloom:{rate}" if rate else "exact"), "images")
        one.redis = state.redis
        for fields in (("exact",), ("bloom",), ("exact", "bloom", "exact_count", "bloom_count")):
            await db(state).delete(state.keys.seen_meta)
            await db(state).hset(state.keys.seen_meta, mapping=dict.fromkeys(fields, value))
            said, _ = await seen_filter_notes(one)
            assert said.isprintable()
