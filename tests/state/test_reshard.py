"""A crawl of one shard is divided: when that is refused, breaks off, is begun anew, and as users see it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from crawlproject import controls
from crawlproject.errors import ConfigError, CrawlprojectError, FrontierInUse
from crawlproject.frontier import division
from crawlproject.state import reshard
from crawlproject.state.client import BlockingState, State
from crawlproject.state.feeders import Feeder
from crawlproject.state.keys import Keys
from crawlproject.state.readers import StreamReader
from crawlproject.state.reshard_copy import Division
from tests.conftest import Scrapy
from tests.leading import lead
from tests.state.dividing import (
    ALL,
    DOMAINS,
    Before,
    BrokenOff,
    crawl_of,
    end_some,
    enqueue,
    fill,
    fill_closed,
    request,
    urls_of_all,
)
from tests.state.servers import Cluster, Server
from tests.waiting import until


def test_each_key_has_its_way() -> None:
    ways = (
        *(reshard.OF_SOURCE, reshard.OF_NUMBER_AND_SOURCE, reshard.BY_SOURCE, reshard.TO_ALL, reshard.TO_FIRST),
        *(reshard.STREAMS, reshard.SEEN, reshard.ITS_OWN, reshard.ANEW),
    )
    assert sorted(name for way in ways for name in way) == sorted(name for name, _ in Keys("crawl", "x").items())


# What it refuses


async def test_it_is_refused_while_somebody_works_on_the_crawl(before: Before, crawl: State) -> None:
    await fill(crawl)
    with pytest.raises(FrontierInUse, match="leader leads the crawl"):
        await asyncio.to_thread(before.divide_blocking)
    client: Any = crawl.redis
    await client.delete(crawl.keys.leader)
    await crawl.scripts.heartbeat("w", join=True, timeout=60, max_deliveries=3)
    with pytest.raises(FrontierInUse, match="workers of images are running"):
        await asyncio.to_thread(before.divide_blocking)
    await crawl.scripts.leave("w")
    with BlockingState.connect(before.config) as state:
        reader = StreamReader(state, "me", "file")
        reader.take()
        with pytest.raises(FrontierInUse, match="reader me is reading events"):
            await asyncio.to_thread(before.divide_blocking)
        reader.give_back()
        feeder = Feeder(state)
        feeder._note(done=False)
        with pytest.raises(FrontierInUse, match="feeds seeds"):
            await asyncio.to_thread(before.divide_blocking)
        feeder._note(done=True)
    State(before.config, "images")
    one = State(before.config, "images")
    await one.open()  # nothing was begun
    await one.close()
    await asyncio.to_thread(before.divide_blocking)


async def test_it_is_done_once_and_who_starts_on_the_former_crawl_is_refused(before: Before, crawl: State) -> None:
    await before.divide()
    with pytest.raises(CrawlprojectError, match=r"has 4 shards.*divided once"):
        await asyncio.to_thread(before.divide_blocking)
    for start in (State(before.config, "images").open, None):
        with pytest.raises(ConfigError, match=r"CRAWL_SHARDS is 1 here and 4 in the crawl.*set CRAWL_SHARDS=4"):
            if start is not None:
                await start()
            else:
                BlockingState.connect(before.config)


@pytest.mark.parametrize(
    "name", ["seeds", "sources", "page_events", "dead", "feeders", "leader", "dropped", "reader"]
)
async def test_a_key_that_is_not_ours_is_named_before_anything_is_begun(on_one_redis: Before, name: str) -> None:
    crawl = await crawl_of(on_one_redis)
    await fill(crawl, 2)
    client: Any = crawl.redis
    key = crawl.keys.reader_of + "me" if name == "reader" else getattr(crawl.keys, name)
    await client.delete(crawl.keys.leader, key)
    if name in {"feeders", "reader"}:
        await client.set(key, "x")
    else:
        await client.hset(key, "a", "b")
    with pytest.raises(CrawlprojectError, match=rf"{key} is a (hash|string), not a \w+: remove or rename it"):
        await asyncio.to_thread(on_one_redis.divide_blocking)
    with BlockingState.connect(on_one_redis.config):  # as before
        await client.delete(key)
    await on_one_redis.divide()
    await crawl.close()


async def test_who_was_there_before_neither_joins_nor_leads_any_more(
    before: Before, crawl: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that had begun to start, and a monitor that was cut off: both have looked at the layout before."""
    await fill(crawl)
    copy = Division._copy
    answers: list[object] = []

    async def come_back() -> None:
        late = State(before.config, "images")
        await late.open(divides=True)
        answers.append(await late.scripts.lead("monitor", ready=True))
        answers.append((await late.scripts.heartbeat("w", join=True, timeout=60, max_deliveries=3)).alive)
        client: Any = late.redis
        answers.append(await client.exists(late.keys.pulse, late.keys.leader, late.keys.workers))
        await late.close()

    def copy_beside(self: Division, name: str, spider: str, keys: list[bytes]) -> None:
        copy(self, name, spider, keys)
        if name == "queue_of" and not answers:
            asyncio.run(come_back())

    with monkeypatch.context() as patched:
        patched.setattr(Division, "_copy", copy_beside)
        await before.divide()
    await come_back()
    assert answers == [None, False, 0] * 2


async def test_shards_that_have_something_are_left_alone(on_one_redis: Before) -> None:
    on_one_redis.cluster.owner_of("{crawl:2}:x").client.set("{crawl:2}:images:outstanding", 3)
    with pytest.raises(CrawlprojectError, match=r"has data of CRAWL_NAMESPACE=crawl already, as \{crawl:2\}"):
        await asyncio.to_thread(on_one_redis.divide_blocking)
    one = State(on_one_redis.config, "images")
    await one.open()
    await one.close()


async def test_a_second_one_is_refused_beside_the_first(
    on_one_redis: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = await crawl_of(on_one_redis)
    await fill(crawl)
    refused: list[str] = []
    copy = Division._copy

    def copy_beside(self: Division, name: str, spider: str, keys: list[bytes]) -> None:
        copy(self, name, spider, keys)
        if name == "queue_of":
            with pytest.raises(FrontierInUse) as found:
                on_one_redis.divide_blocking()
            refused.append(str(found.value))

    with monkeypatch.context() as patched:
        patched.setattr(Division, "_copy", copy_beside)
        await on_one_redis.divide()
    assert refused
    assert all("another scrapy reshard is at work on CRAWL_NAMESPACE=crawl" in said for said in refused)
    await crawl.close()
    after = await on_one_redis.open()
    assert await urls_of_all(after) == ALL
    await after.close()


async def test_one_that_hung_leaves_it_to_the_one_that_has_taken_over(
    on_one_redis: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill_closed(on_one_redis)
    monkeypatch.setattr(reshard, "_GONE_S", 0.0)  # it has not said anything for so long
    copy = Division._copy
    taken_over: list[division.Divided] = []

    def hang(self: Division, name: str, spider: str, keys: list[bytes]) -> None:
        copy(self, name, spider, keys)
        if name == "queue_of":
            monkeypatch.setattr(Division, "_copy", copy)
            taken_over.append(on_one_redis.divide_blocking())

    monkeypatch.setattr(Division, "_copy", hang)
    with pytest.raises(FrontierInUse, match="another scrapy reshard has taken the division over"):
        await on_one_redis.divide()
    assert taken_over[0].requests == 240
    assert not any("broke off, and" in said for said in on_one_redis.heard)
    after = await on_one_redis.open()
    assert await urls_of_all(after) == ALL
    await after.close()


async def test_one_that_was_suspended_knows_it_soon(on_one_redis: Before, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock stood still, too: what says that it is alive finds out that another one has taken over."""
    monkeypatch.setattr(reshard, "_ALIVE_EVERY_S", 0.05)
    await (await crawl_of(on_one_redis)).close()
    with (
        BlockingState.connect(on_one_redis.config, divides=True) as source,
        BlockingState.connect(on_one_redis.after, divides=True) as target,
        closing(reshard.Layouts(source, target)) as layouts,
    ):
        assert not layouts.begin()
        layouts.check()
        source_redis: Any = source.redis
        source_redis.hset(source.keys.layout, "divider", "another")

        def has_noticed() -> bool:
            try:
                layouts.check()
            except FrontierInUse:
                return True
            return False

        until(has_noticed, 5)


@pytest.mark.parametrize("begun_anew", [False, True])
async def test_one_that_hung_deletes_nothing_of_the_one_that_has_taken_over(
    on_one_redis: Before, monkeypatch: pytest.MonkeyPatch, begun_anew: bool
) -> None:
    """While it was taking away what an earlier one had copied; the other one has ended, and workers may crawl."""
    await fill_closed(on_one_redis)
    await break_off(on_one_redis, monkeypatch)
    monkeypatch.setattr(reshard, "_GONE_S", 0.0)  # it has not said anything for so long
    pages = reshard.pages

    def hang(items: Iterable[Any]) -> Iterator[list[Any]]:
        monkeypatch.setattr(reshard, "pages", pages)
        first, *others = pages(items, 10)
        yield first
        on_one_redis.divide_blocking()
        yield from others

    monkeypatch.setattr(reshard, "pages", hang)
    with pytest.raises(FrontierInUse, match="another scrapy reshard has taken the division over"):
        await (on_one_redis.divide() if begun_anew else on_one_redis.give_up())
    after = await on_one_redis.open()
    assert await urls_of_all(after) == ALL
    await after.close()


async def test_a_crawl_of_one_shard_on_that_cluster_is_left_alone(on_one_redis: Before) -> None:
    """What operators write is the same key for both: and neither could start beside the other."""
    on_one_redis.cluster.owner_of("{crawl}:x").client.set("{crawl}:images:outstanding", 3)
    with pytest.raises(CrawlprojectError, match=r"has data of CRAWL_NAMESPACE=crawl already, as \{crawl\}:images"):
        await asyncio.to_thread(on_one_redis.divide_blocking)
    with BlockingState.connect(on_one_redis.config):
        pass


async def test_a_crawl_on_a_cluster_is_divided_there(cluster: Cluster, cluster_url: str, tmp_path: Path) -> None:
    """Elsewhere the operators' sets would be missing: leaders would take each halt for one that was lifted."""
    with closing(Cluster(tmp_path)) as other:
        elsewhere = Before(other.url, cluster)
        with pytest.raises(CrawlprojectError, match="--on is another Redis Cluster than that of REDIS_URL"):
            await asyncio.to_thread(elsewhere.divide_blocking)
        for settings in (elsewhere.config, elsewhere.after):
            with BlockingState.connect(settings):
                pass


async def test_a_format_that_the_cluster_does_not_know_is_found_before_anything_is_begun(
    on_one_redis: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump: Any = redis.Redis.dump

    def newer(self: redis.Redis, name: str) -> bytes:
        payload = bytes(dump(self, name))
        return payload[:-10] + b"\xff\x7f" + payload[-8:]  # the version, before the checksum

    crawl = await crawl_of(on_one_redis)
    await fill(crawl, 2)
    with monkeypatch.context() as patched:
        patched.setattr(redis.Redis, "dump", newer)
        with pytest.raises(
            CrawlprojectError, match=r"REDIS_URL leads to is \w+ \d.*, and the cluster is \w+ \d.*: take"
        ):
            await on_one_redis.divide()
    with BlockingState.connect(on_one_redis.config):
        pass
    await on_one_redis.divide()
    await crawl.close()


# What breaks off


def die_at_call(patched: pytest.MonkeyPatch, when: int) -> None:
    """Have a process die at the so-manieth blocking call to Redis, or when the one after it was made."""
    calls = 0

    def dying(of: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == when:
                raise BrokenOff
            found = of(*args, **options)
            if calls == when + 1:
                raise BrokenOff
            return found

        return run

    patched.setattr(redis.Redis, "execute_command", dying(redis.Redis.execute_command))
    patched.setattr(redis.client.Pipeline, "execute", dying(redis.client.Pipeline.execute))


@pytest.mark.parametrize("seed", range(6))
async def test_one_that_breaks_off_is_begun_anew(
    before: Before, crawl: State, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    await fill(crawl)
    await end_some(crawl, 30)
    chance = random.Random(seed)
    gone_s = 0.2
    monkeypatch.setattr(reshard, "_GONE_S", gone_s)
    for _ in range(4):
        with monkeypatch.context() as patched:
            die_at_call(patched, chance.randrange(15, 200))  # of some 190
            try:
                await before.divide()
            except BrokenOff:
                await asyncio.sleep(1.5 * gone_s)
            except CrawlprojectError as error:
                assert "divided once" in str(error)
    with suppress(CrawlprojectError):  # it was done but for the last word
        await before.divide()
    after = await before.open()
    found = await urls_of_all(after)
    assert set(found.values()) == {1}
    assert found.total() == 240 - 30
    events = 0
    for shard in after.shards:
        client: Any = shard.redis
        events += sum([await client.xlen(stream) for stream in shard.keys.streams])
    assert events == 30
    for domain in DOMAINS:
        reply = await enqueue(after.shard_for(domain), [request(domain, place) for place in range(20)])
        assert reply.duplicates == 20
    await after.close()
    with pytest.raises(ConfigError, match="4 in the crawl"):
        await State(before.config, "images").open()


async def break_off(before: Before, monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide it, and die when all is copied."""

    def die(*args: object) -> None:
        raise BrokenOff

    with monkeypatch.context() as patched:
        patched.setattr(reshard, "check_copied", die)
        with pytest.raises(BrokenOff):
            await before.divide()


def keys_there(cluster: Cluster) -> set[bytes]:
    return {key for master in cluster.masters() for key in master.client.scan_iter(count=1000)}


async def test_one_that_breaks_off_may_be_begun_anew_with_another_number(
    on_one_redis: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two shards one master has none: what it got of four is taken away all the same."""
    crawl = await crawl_of(on_one_redis)
    await fill(crawl)
    await controls.set_rate(crawl, "s2.example", "7", "test")
    await break_off(on_one_redis, monkeypatch)
    assert b"crawl:override_rate:s2.example" in keys_there(on_one_redis.cluster)
    await controls.set_rate(crawl, "s2.example", "auto", "test")
    on_one_redis.into(2)
    done = await on_one_redis.divide()
    assert (done.shards, done.requests) == (2, 240)
    with BlockingState.connect(on_one_redis.after) as state:
        own = tuple(shard.keys.namespace.encode() + b":" for shard in state.shards)
    others = {key for key in keys_there(on_one_redis.cluster) if not key.startswith((*own, b"{crawl:before:"))}
    assert others == {b"{crawl}:layout"}
    await crawl.close()


@pytest.mark.parametrize("seed", range(6))
async def test_one_that_is_given_up_leaves_the_crawl_as_it_was(
    before: Before, crawl: State, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Whenever it broke off, and where giving it up breaks off, too. Later the crawl is divided all the same."""
    await fill(crawl)
    await end_some(crawl, 30)
    await controls.set_rate(crawl, "s2.example", "7", "test")
    chance = random.Random(seed)
    gone_s = 0.2
    monkeypatch.setattr(reshard, "_GONE_S", gone_s)
    with monkeypatch.context() as patched:
        die_at_call(patched, chance.randrange(40, 190))
        with suppress(BrokenOff):
            await before.divide()
    with suppress(BrokenOff), monkeypatch.context() as patched:
        await asyncio.sleep(1.5 * gone_s)
        die_at_call(patched, chance.randrange(1, 40))
        await before.give_up()
    await asyncio.sleep(1.5 * gone_s)
    try:
        await before.give_up()
    except CrawlprojectError as error:  # it had not begun, or was given up before it died
        assert "there is nothing to give up" in str(error)
    former = (b"{crawl}:", b"crawl:", b"images:")
    assert {key for key in keys_there(before.cluster) if not key.startswith(former)} == set()
    again = State(before.config, "images")
    await again.open()
    await lead(again)
    reply = await enqueue(again, [request(DOMAINS[0], place) for place in range(21)])
    assert (reply.admitted, reply.duplicates) == (1, 20)
    ended = await end_some(again, 40)
    await again.close()
    await controls.set_rate(crawl, "s2.example", "auto", "test")
    before.into(2)
    assert (await before.divide()).requests == 241 - 30 - ended
    assert b"crawl:override_rate:s2.example" not in keys_there(before.cluster)


async def test_only_what_has_broken_off_is_given_up(before: Before, crawl: State, tmp_path: Path) -> None:
    await fill(crawl)
    with pytest.raises(CrawlprojectError, match="no division of CRAWL_NAMESPACE=crawl has broken off: there is"):
        division.begun(before.config)
    with pytest.raises(CrawlprojectError, match="no division of CRAWL_NAMESPACE=crawl has broken off: there is"):
        await before.give_up()
    assert not any(b"layout" in key for key in keys_there(before.cluster))
    await before.divide()
    keys = keys_there(before.cluster)
    ended = r"has 4 shards.*: that division has ended, and workers may have crawled there since"
    with pytest.raises(CrawlprojectError, match=ended):
        await before.give_up()
    with pytest.raises(CrawlprojectError, match=ended):
        division.begun(before.config)
    assert keys_there(before.cluster) == keys


async def test_one_that_is_at_work_is_not_given_up(on_one_redis: Before, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill_closed(on_one_redis)
    refused: list[str] = []
    copy = Division._copy

    def copy_beside(self: Division, name: str, spider: str, keys: list[bytes]) -> None:
        copy(self, name, spider, keys)
        if name == "queue_of":
            with pytest.raises(FrontierInUse) as found:
                division.give_up(on_one_redis.config, on_one_redis.after)
            refused.append(str(found.value))

    with monkeypatch.context() as patched:
        patched.setattr(Division, "_copy", copy_beside)
        await on_one_redis.divide()
    assert refused
    assert all("another scrapy reshard is at work on CRAWL_NAMESPACE=crawl" in said for said in refused)
    after = await on_one_redis.open()
    assert await urls_of_all(after) == ALL
    await after.close()


async def test_one_is_given_up_where_it_was_to_go(
    on_one_redis: Before, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another Redis Cluster may have a crawl of that name."""
    await fill_closed(on_one_redis)
    await break_off(on_one_redis, monkeypatch)
    with closing(Cluster(tmp_path)) as other:
        other.owner_of("{crawl:2}:x").client.set("{crawl:2}:images:outstanding", 3)
        elsewhere = replace(on_one_redis.after, redis_url=other.url)
        with pytest.raises(
            CrawlprojectError, match=r"knows of no division of CRAWL_NAMESPACE=crawl: name in --on"
        ):
            await asyncio.to_thread(division.give_up, on_one_redis.config, elsewhere)
        assert keys_there(other) == {b"{crawl:2}:images:outstanding"}
    with pytest.raises(ConfigError, match="or scrapy reshard --give-up to go on with the crawl as it was"):
        BlockingState.connect(on_one_redis.config)
    assert (await on_one_redis.give_up()).keys > 100
    with BlockingState.connect(on_one_redis.config):
        pass


@pytest.mark.slow
async def test_a_master_that_dies_meanwhile_breaks_it_off(
    on_one_redis: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have lost what it had got: begun anew, all is there."""
    await fill_closed(on_one_redis)
    cluster = on_one_redis.cluster
    victims: list[Server] = []
    copy = Division._copy

    def has_taken_over() -> bool:
        with suppress(LookupError):
            return cluster.owner_of("{crawl:1}") is not victims[0]
        return False

    def copy_and_kill(self: Division, name: str, spider: str, keys: list[bytes]) -> None:
        copy(self, name, spider, keys)
        if name == "queue_of" and not victims:
            victims.append(cluster.owner_of("{crawl:1}"))
            victims[0].kill()
            until(has_taken_over)

    with monkeypatch.context() as patched:
        patched.setattr(Division, "_copy", copy_and_kill)
        with pytest.raises((CrawlprojectError, redis.RedisError)):
            await on_one_redis.divide()
    with pytest.raises(ConfigError, match="is being divided into 4 shards: wait for that, or"):
        await State(on_one_redis.config, "images").open()
    victims[0].start()
    until(cluster.is_whole)
    await on_one_redis.divide()
    assert on_one_redis.heard[-2] == "a division that broke off is begun anew"
    after = await on_one_redis.open()
    assert await urls_of_all(after) == ALL
    await after.close()


# As users run it


def test_the_command_says_what_it_does(on_one_redis: Before, scrapy: Scrapy) -> None:
    client = redis.Redis.from_url(on_one_redis.config.redis_url or "")
    client.rpush("images:start_urls", *(f"http://{domain}/1.jpg" for domain in DOMAINS))
    client.set("crawl:other", "x")
    at = ("--on", on_one_redis.cluster.url)
    planned = scrapy("reshard", "--to", "4", *at, "--dry-run")
    assert planned.stdout.startswith("images: ")
    assert "would be copied into 4 shards in about " in planned.stdout
    assert not client.exists("crawl:layout")
    client.set("crawl:leader", "w", ex=60)  # it still runs
    planned = scrapy("reshard", "--to", "4", *at, "--dry-run")
    assert (planned.returncode, planned.stdout[:8]) == (0, "images: ")
    client.delete("crawl:leader")
    away = scrapy("reshard", "--to", "4", "--on", "redis+cluster://127.0.0.1:1", "--dry-run")
    assert (away.returncode, away.stdout) == (1, "")
    assert "does not answer" in away.stderr
    done = scrapy("reshard", "--to", "4", *at)
    assert done.stdout.splitlines()[0].startswith(
        "0 sources, 12 seeds, 0 requests, 0 events and 0 dead letters of images are in 4 shards, after "
    )
    assert "Go on with CRAWL_SHARDS=4 and REDIS_URL to that Redis Cluster." in done.stdout
    assert "1 key of no meaning to crawlproject stayed there: crawl:other" in done.stdout
    assert "note: copying " in done.stderr
    again = scrapy("reshard", "--to", "4", *at)
    assert (again.returncode, again.stdout) == (1, "")
    planned = scrapy("reshard", "--to", "4", *at, "--dry-run")
    assert (planned.returncode, planned.stdout, planned.stderr) == (1, "", again.stderr)
    assert "has 4 shards, on redis+cluster://127.0.0.1:" in again.stderr
    refused = scrapy("stats")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert (
        "CRAWL_SHARDS is 1 here and 4 in the crawl of CRAWL_NAMESPACE=crawl, divided on redis+cluster://127"
        in refused.stderr
    )
    shards = scrapy("shards", REDIS_URL=on_one_redis.cluster.url, CRAWL_SHARDS="4")
    assert shards.returncode == 0
    client.close()


def test_it_says_how_to_go_on_where_it_breaks_off(on_one_redis: Before, scrapy: Scrapy) -> None:
    client = redis.Redis.from_url(on_one_redis.config.redis_url or "")
    client.rpush("images:start_urls", *(f"http://{domain}/1.jpg" for domain in DOMAINS))
    at = ("--on", on_one_redis.cluster.url)
    full = on_one_redis.cluster.owner_of("{crawl:1}:x").client
    full.config_set("maxmemory", "1")
    try:
        done = scrapy("reshard", "--to", "4", *at)
    finally:
        full.config_set("maxmemory", "0")
    assert done.returncode == 1
    assert "a node of the Redis Cluster is out of memory (maxmemory)" in done.stderr
    assert (
        "note: it broke off, and nobody can start: run this again, which begins anew; or, to go on with the crawl "
        "as it was, scrapy reshard --give-up"
    ) in done.stderr
    assert scrapy("stats").returncode == 1
    given_up = scrapy("reshard", "--give-up", *at)
    assert given_up.returncode == 0, given_up.stderr
    assert given_up.stdout.startswith("The division into 4 shards is given up, and ")
    assert given_up.stdout.endswith("The crawl goes on where it was, with the settings that it had.\n")
    assert keys_there(on_one_redis.cluster) == set()
    again = scrapy("reshard", "--give-up", *at)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.endswith(
        "no division of CRAWL_NAMESPACE=crawl has broken off: there is nothing to give up\n"
    )
    assert scrapy("stats").returncode == 0
    assert scrapy("reshard", "--to", "4", *at).returncode == 0
    client.close()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "expected --to N, or --give-up"),
        (["--give-up", "--to", "4"], "--give-up goes with neither --to nor --dry-run"),
        (["--give-up", "--dry-run"], "--give-up goes with neither --to nor --dry-run"),
        (["--to", "1"], "--to 1: a crawl is divided among 2 shards or more"),
        (["--to", "12"], "--to 12 must be a power of two"),
        (
            ["--to", "4"],
            "shards need a Redis Cluster: name some of its nodes, as in --on redis+cluster://host:7000",
        ),
        (["--to", "4", "--on", "redis+cluster://"], "must be redis+cluster://[user:password@]host:6379"),
        (["--to", "4", "x"], "expected no arguments"),
    ],
)
def test_the_command_refuses_what_cannot_be(scrapy: Scrapy, args: list[str], said: str) -> None:
    done = scrapy("reshard", *args)
    assert done.returncode == 2
    assert said in done.stdout + done.stderr


def test_a_crawl_of_several_shards_is_not_divided_again(cluster_url: str, scrapy: Scrapy) -> None:
    done = scrapy("reshard", "--to", "8", REDIS_URL=cluster_url, CRAWL_SHARDS="4")
    assert done.returncode == 2
    assert "CRAWL_SHARDS=4: a crawl is divided once" in done.stdout + done.stderr
