"""A crawl of one shard is divided: nothing is lost, doubled, or fetched again."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import pytest_asyncio
import redis
from scrapy import Request

from crawlproject import config, controls
from crawlproject.errors import ConfigError, CrawlprojectError, FrontierInUse
from crawlproject.frontier import codec, division
from crawlproject.frontier.discovery import Discovery, Link
from crawlproject.frontier.dropped import drop_queued, forget_dropped
from crawlproject.frontier.dupefilter import digest_of
from crawlproject.frontier.overflow import Overflow
from crawlproject.sinks.dataset import Dataset
from crawlproject.sinks.jsonlines import EventFile
from crawlproject.sinks.parquet import ParquetForm
from crawlproject.sinks.sharded_lines import ShardedEventFile
from crawlproject.spiders.images import ImagesSpider
from crawlproject.state import reshard
from crawlproject.state.client import BlockingState, State
from crawlproject.state.feeders import Feeder
from crawlproject.state.keys import Keys
from crawlproject.state.readers import StreamReader
from crawlproject.state.scripts import LinkGroup, NewRequest, Settlement
from crawlproject.state.seen import seen_filter_notes
from crawlproject.state.seen_before import part_namespace
from crawlproject.state.shards import shard_of
from crawlproject.storage.packs import FolderPacks
from crawlproject.storage.parts import FolderParts
from tests.conftest import Scrapy
from tests.leading import lead
from tests.state.servers import Cluster, Server
from tests.waiting import until

SHARDS = 4
DOMAINS = [f"s{number}.example" for number in range(12)]
SPIDER = ImagesSpider()


def test_each_key_has_its_way() -> None:
    ways = (
        *(reshard.OF_SOURCE, reshard.OF_NUMBER_AND_SOURCE, reshard.BY_SOURCE, reshard.TO_ALL, reshard.TO_FIRST),
        *(reshard.STREAMS, reshard.SEEN, reshard.ITS_OWN, reshard.ANEW),
    )
    assert sorted(name for way in ways for name in way) == sorted(name for name, _ in Keys("crawl", "x").items())


class BrokenOff(BaseException):
    """The process dies."""


class Before:
    """A crawl of one shard, and what it is to become."""

    def __init__(self, url: str, cluster: Cluster) -> None:
        settings = {"REDIS_URL": url, "CRAWL_HEARTBEAT_TIMEOUT": "1"}
        self.config = config.load(settings)
        self.after = config.load(settings | {"REDIS_URL": cluster.url, "CRAWL_SHARDS": str(SHARDS)})
        self.cluster = cluster
        self.heard: list[str] = []

    def settle(self, **settings: str) -> None:
        """Set further settings, for both."""
        self.config, self.after = (
            config.load(
                {
                    "REDIS_URL": one.redis_url,
                    "CRAWL_SHARDS": str(one.shards),
                    "CRAWL_HEARTBEAT_TIMEOUT": "1",
                    **settings,
                }
            )
            for one in (self.config, self.after)
        )

    def divide_blocking(self) -> division.Divided:
        return division.divide(self.config, self.after, ["images", "pages"], self.heard.append)

    async def divide(self) -> division.Divided:
        """Divide it, when all have been gone for long."""
        with BlockingState.connect(self.config, divides=True) as one:
            client: Any = one.redis
            client.delete(one.keys.leader, one.keys.pulse)
            for worker in client.zrange(one.keys.workers, 0, -1):
                client.zadd(one.keys.workers, {worker: 1})
        return await asyncio.to_thread(self.divide_blocking)

    async def open(self) -> State:
        """Open the shards, led, when they give slots."""
        one = State(self.after, "images")
        await one.open()
        for shard in one.shards:
            await lead(shard)
        await asyncio.sleep(0.6)  # another server has the clock now: nothing goes out for half a second
        return one


@pytest.fixture(params=["one Redis", "one shard of the cluster"])
def before(request: pytest.FixtureRequest, cluster: Cluster, cluster_url: str, redis_url: str) -> Before:
    """A crawl on one Redis, or in a shard of the cluster that it stays on."""
    return Before(redis_url if request.param == "one Redis" else cluster_url, cluster)


@pytest.fixture
def on_one_redis(cluster: Cluster, cluster_url: str, redis_url: str) -> Before:
    """A crawl on one Redis."""
    assert cluster_url
    return Before(redis_url, cluster)


async def crawl_of(before: Before) -> State:
    """Open a crawl that is led, without workers."""
    one = State(before.config, "images")
    await one.open()
    await lead(one)
    return one


@pytest_asyncio.fixture
async def crawl(before: Before) -> AsyncIterator[State]:
    one = await crawl_of(before)
    yield one
    await one.close()


def request(domain: str, number: int) -> NewRequest:
    url = f"http://{domain}/{number}.jpg"
    made = Request(url, callback=SPIDER.parse, meta={"identifier": f"{domain}-{number}"})
    return NewRequest(codec.encode(made, SPIDER), digest_of(f"{domain}-{number}", url), again=False, domain=domain)


async def enqueue(shard: State, items: list[NewRequest], **bounds: Any) -> Any:
    options = {"high_water": 10_000, "overflow_maxlen": 10_000, "refuse_unknown": False} | bounds
    return await shard.scripts.enqueue("w", items, **options)


async def fill(one: State, count: int = 20, **bounds: Any) -> None:
    reply = await enqueue(one, [request(domain, place) for domain in DOMAINS for place in range(count)], **bounds)
    assert reply.admitted == count * len(DOMAINS)


async def lease_all(shard: State, worker: str = "w", most: int = 10_000) -> list[tuple[str, bytes]]:
    """Lease what a shard has; return ids and requests."""
    await shard.scripts.heartbeat(worker, join=True, timeout=60, max_deliveries=3)
    client: Any = shard.redis
    found: list[tuple[str, bytes]] = []
    while len(found) < most:
        await client.delete(shard.keys.slots)
        some = min(64, most - len(found))
        reply = await shard.scripts.lease(
            *(worker, some), rooms={}, room=64, idle=True, horizon=1e6, dead_maxlen=99, max_deliveries=3
        )
        if not reply.grants:
            break
        found += [(grant.id, grant.entry) for grant in reply.grants]
    return found


def urls(found: list[tuple[str, bytes]]) -> Counter[str]:
    return Counter(codec.url_of(entry) for _, entry in found)


async def urls_of_all(after: State) -> Counter[str]:
    """Lease all that there is, and see that each request is where its source is."""
    found: Counter[str] = Counter()
    for shard in after.shards:
        here = urls(await lease_all(shard))
        assert {shard_of(url.split("/")[2], SHARDS) for url in here} <= {shard.number}
        found += here
    return found


ALL = Counter(f"http://{domain}/{place}.jpg" for domain in DOMAINS for place in range(20))


async def test_all_requests_are_in_the_shards_of_their_sources_once(before: Before, crawl: State) -> None:
    await fill(crawl)
    done = await before.divide()
    assert (done.shards, done.sources, done.requests, done.left) == (SHARDS, 12, 240, 0)
    after = await before.open()
    for shard in after.shards:
        client: Any = shard.redis
        own = [domain for domain in DOMAINS if shard_of(domain, SHARDS) == shard.number]
        assert int(await client.get(shard.keys.outstanding)) == 20 * len(own)
    assert await urls_of_all(after) == ALL
    await after.close()


async def test_what_dead_workers_held_and_what_waits_apart_is_there(before: Before, crawl: State) -> None:
    await fill(crawl, high_water=120)  # half of it in overflows
    held = await lease_all(crawl, "dead worker", 30)
    client: Any = crawl.redis
    source = codec.url_of(held[0][1]).split("/")[2]
    await crawl.scripts.settle("dead worker", [Settlement(held[0][0], source, entry=held[0][1], delay=3600.0)])
    await client.rpush(crawl.keys.processing_of + "dead worker", b"http://seed.example/1.jpg")
    await client.lpush(crawl.keys.seeds, b"http://seed.example/2.jpg")
    await client.zadd(crawl.keys.workers, {"dead worker": 1})
    done = await before.divide()
    assert done.requests == 240
    after = await before.open()
    first = after.shards[0]
    first_client: Any = first.redis
    seeds = await first_client.lrange(first.keys.seeds, 0, -1)
    assert sorted(seeds) == [b"http://seed.example/1.jpg", b"http://seed.example/2.jpg"]
    of_delayed = after.shard_for(source)
    delayed_client: Any = of_delayed.redis
    delayed = of_delayed.keys.delayed_of + source
    [waiting] = await delayed_client.zrange(delayed, 0, -1)
    assert waiting.endswith(held[0][1])
    await delayed_client.zadd(delayed, {waiting: 1})  # its time has come
    found = await urls_of_all(after)
    assert found == ALL
    await after.close()


@pytest.mark.parametrize(("part_bytes", "parts"), [(2**30, 1), (2**18, SHARDS)])
async def test_nothing_seen_is_taken_again(
    before: Before, crawl: State, monkeypatch: pytest.MonkeyPatch, part_bytes: int, parts: int
) -> None:
    monkeypatch.setattr(reshard, "_PART_BYTES", part_bytes)
    await fill(crawl)
    found = [LinkGroup("s1.example", None, [request("s1.example", 99).entry], [b"l" * 32], [None])]
    options: dict[str, Any] = {"high_water": 999, "overflow_maxlen": 99, "refuse_unknown": False, "budget": None}
    assert (await crawl.scripts.discover(found, **options)).letters == "a"  # type: ignore[union-attr]
    assert (await before.divide()).seen_parts == parts
    after = await before.open()
    for domain in DOMAINS:
        shard = after.shard_for(domain)
        reply = await enqueue(shard, [request(domain, place) for place in range(25)])
        assert (reply.admitted, reply.duplicates) == (5, 20)
        assert await shard.scripts.was_seen(request(domain, 3).digest) == "exact"
        assert await shard.scripts.was_seen(request(domain, 77).digest) == ""
        reply = await enqueue(shard, [request(domain, place) for place in range(25)])
        assert reply.duplicates == 25
    shard = after.shard_for("s1.example")
    assert (await shard.scripts.discover(found, **options)).letters == "k"  # type: ignore[union-attr]
    await after.close()


async def test_workers_say_that_there_is_a_filter_of_before(on_one_redis: Before) -> None:
    crawl = await crawl_of(on_one_redis)
    await fill(crawl, 2)
    await crawl.close()
    await on_one_redis.divide()
    after = await on_one_redis.open()
    said, warnings = await seen_filter_notes(after)
    assert said.endswith("; what was seen before the crawl was divided, in 1 slot of its own")
    assert warnings == []
    await after.close()


async def test_a_note_of_that_which_is_of_another_type_is_named(on_one_redis: Before) -> None:
    """As of a crawl that was never divided: seeds become dead letters, and nothing is fetched again."""
    await on_one_redis.divide()
    after = await on_one_redis.open()
    shard = after.shard_for("s1.example")
    client: Any = shard.redis
    await client.delete(shard.keys.seen_meta)
    await client.rpush(shard.keys.seen_meta, "x")
    with pytest.raises(
        redis.ResponseError, match=rf"WRONGTYPE {shard.keys.seen_meta} is a list, not a hash: remove"
    ):
        await enqueue(shard, [request("s1.example", 1)])
    await after.close()


async def test_what_is_purged_may_come_again(before: Before, crawl: State) -> None:
    await fill(crawl)
    await before.divide()
    after = await before.open()
    shard = after.shard_for("s1.example")
    assert await drop_queued(after, "s1.example", "purged") == 20
    await forget_dropped(shard)
    reply = await enqueue(shard, [request("s1.example", place) for place in range(20)])
    assert reply.admitted == 20
    await after.close()


async def test_what_is_known_of_sources_is_where_they_are(before: Before, crawl: State) -> None:
    await fill(crawl, 2)
    client: Any = crawl.redis
    await controls.halt(crawl, ["s1.example"], "test")
    await controls.set_rate(crawl, "s2.example", "7", "test")
    await controls.exclude(crawl, ["s3.example"], "because", "test")
    await client.hset(crawl.keys.counts_of + "thumbnails", mapping={"s4.example": 44, "s5.example": 55})
    await client.hset(crawl.keys.totals, "thumbnails", 99)
    await client.hset(crawl.keys.circuit_of + "s6.example", "state", "open")
    await client.set(crawl.keys.seconds_of + "s7.example", b"12", ex=120)
    await client.set("crawl:of-somebody-else" if not crawl.is_shard else "{crawl}:of-somebody-else", "x")
    done = await before.divide()
    assert done.left == 1
    after = await before.open()
    shards = {domain: after.shard_for(domain) for domain in DOMAINS}

    async def ask(number: int, call: str, key: str, *more: str) -> Any:
        shard = shards[f"s{number}.example"]
        return await getattr(shard.redis, call)(key.format(n=shard.keys.namespace), *more)

    assert await ask(1, "smembers", "{n}:halted") == {b"s1.example"}
    assert await ask(2, "get", "{n}:override_rate:s2.example") == b"7"
    assert await ask(
        4,
        "hgetall",
        "{n}:images:counts:thumbnails",
    ) == {
        domain: count
        for domain, count in {b"s4.example": b"44", b"s5.example": b"55"}.items()
        if shards[domain.decode()] is shards["s4.example"]
    }
    assert await ask(6, "hget", "{n}:circuit:s6.example", "state") == b"open"
    assert await ask(7, "get", "{n}:seconds:s7.example") == b"12"
    assert 0 < await ask(7, "ttl", "{n}:seconds:s7.example") <= 120
    total = 0
    for shard in after.shards:
        one: Any = shard.redis
        assert await one.sismember(shard.keys.excluded, "s3.example")
        assert b"because" in await one.hget(shard.keys.excluded_by, "s3.example")
        sources = {name.decode() for name in await one.smembers(shard.keys.sources)}
        assert sources == {domain for domain in DOMAINS if shard_of(domain, SHARDS) == shard.number}
        total += int(await one.hget(shard.keys.totals, "thumbnails") or 0)
    assert total == 99
    users: Any = after.client_for(after.keys.users_override_rate_of + "s2.example")
    assert await users.get(after.keys.users_override_rate_of + "s2.example") == b"7"
    await users.aclose()
    await after.close()


async def end_some(shard: State, count: int) -> int:
    """Lease requests, and end them as events and dead letters in turn; return how many there were."""
    leases = await lease_all(shard, most=count)
    for number, (lease, entry) in enumerate(leases):
        url = codec.url_of(entry)
        source = url.split("/")[2]
        event = json.dumps({"identifier": url, "url": url, "source": source, "time": "2026-01-01T00:00:00+00:00"})
        await shard.scripts.settle(
            "w",
            [
                Settlement(lease, source, entry=entry, dead="broken", refusal=number % 4 == 1)
                if number % 2
                else Settlement(lease, source, event=("image_metadata_updates", event))
            ],
            dead_maxlen=99,
        )
    return len(leases)


def lines_of(path: Path) -> Counter[str]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return Counter(line.get("url", "") for line in found)


@pytest.mark.parametrize("ends", ["in good order", "before its file says what Redis knows", "before Redis knows"])
async def test_a_file_goes_on_with_the_events_of_all_shards(
    on_one_redis: Before, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    crawl = await crawl_of(on_one_redis)
    await fill(crawl)
    await end_some(crawl, 40)
    path = tmp_path / "events.jsonl"

    def read_undivided() -> None:
        with BlockingState.connect(on_one_redis.config) as state:
            file = EventFile(path, state)
            with file.opened():
                assert file.drain() == 40

    await asyncio.to_thread(read_undivided)
    await end_some(crawl, 40)

    def read_and_die() -> None:
        def die(*args: Any) -> Any:
            raise BrokenOff

        with BlockingState.connect(on_one_redis.config) as state, monkeypatch.context() as patched:
            file = EventFile(path, state)
            if ends == "before Redis knows":
                patched.setattr(StreamReader, "note", lambda self, length, instead_of="": instead_of or die())
            elif ends != "in good order":
                patched.setattr(EventFile, "_settled", die)
            with suppress(BrokenOff), file.opened():
                file.drain()

    await asyncio.to_thread(read_and_die)
    assert (await on_one_redis.divide()).events == 80
    after = await on_one_redis.open()
    ended = [await end_some(shard, 20) for shard in after.shards]
    assert sum(ended) > 40
    await after.close()
    await crawl.close()

    def read_on() -> ShardedEventFile:
        with BlockingState.connect(on_one_redis.after) as state:
            file = ShardedEventFile(path, state)
            with file.opened():
                file.drain()
            return file

    file = await asyncio.to_thread(read_on)
    assert file.remarks == []
    found = lines_of(path)
    assert set(found.values()) == {1}, found
    assert found.total() == 80 + sum(ended)


async def test_a_dataset_goes_on_with_the_rows_of_all_shards(
    on_one_redis: Before, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = await crawl_of(on_one_redis)
    await fill(crawl)
    await end_some(crawl, 40)

    def write(configuration: config.Config, rows: int) -> Counter[str]:
        folder = tmp_path / "dataset"
        with BlockingState.connect(configuration) as state:
            parts = FolderParts(folder)
            dataset = Dataset(state, parts, ParquetForm(parts, rows), every=600)
            with dataset.opened():
                dataset.drain()
                dataset.commit()
        tables = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]
        return Counter(url for table in tables for url in table["url"].to_pylist())

    assert (await asyncio.to_thread(write, on_one_redis.config, 15)).total() == 40
    await end_some(crawl, 40)
    with pytest.raises(BrokenOff), monkeypatch.context() as patched:
        patched.setattr(StreamReader, "note", die_at_note(3))  # a part has appeared, and Redis does not know
        await asyncio.to_thread(write, on_one_redis.config, 15)
    written = sum(pq.read_metadata(path).num_rows for path in (tmp_path / "dataset").glob("*.parquet"))
    assert 40 < written <= 80
    await on_one_redis.divide()
    await crawl.close()
    after = await on_one_redis.open()
    ended = [await end_some(shard, 20) for shard in after.shards]
    await after.close()
    found = await asyncio.to_thread(write, on_one_redis.after, 15)
    assert set(found.values()) == {1}
    assert found.total() == 80 + sum(ended)


def die_at_note(number: int) -> Any:
    """Return a `note` of a reader that dies when it is called for the so-manieth time."""
    left = [number]
    note = StreamReader.note

    def dying(reader: StreamReader, *args: Any, **options: Any) -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise BrokenOff
        note(reader, *args, **options)

    return dying


async def test_dead_letters_are_those_of_their_shards(before: Before, crawl: State, scrapy: Scrapy) -> None:
    await fill(crawl)
    await end_some(crawl, 40)
    assert (await before.divide()).dead_letters == 20
    after = await before.open()
    kept = refused = 0
    for shard in after.shards:
        client: Any = shard.redis
        letters = await client.xrange(shard.keys.dead)
        assert {shard_of(fields[b"source"].decode(), SHARDS) for _, fields in letters} <= {shard.number}
        counted: Counter[bytes] = Counter(fields[b"source"] for _, fields in letters)
        noted = {name: int(number) for name, number in (await client.hgetall(shard.keys.dead_sources)).items()}
        assert noted == counted
        kept += len(letters)
        refused += int(await client.get(shard.keys.dead_refusals) or 0)
    assert (kept, refused) == (20, 10)
    retried = scrapy("dead", "retry", "--json", REDIS_URL=before.cluster.url, CRAWL_SHARDS=str(SHARDS))
    assert json.loads(retried.stdout) == {"retried": 20}
    await after.close()


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
    copy = reshard.Division._copy
    answers: list[object] = []

    async def come_back() -> None:
        late = State(before.config, "images")
        await late.open(divides=True)
        answers.append(await late.scripts.lead("monitor", ready=True))
        answers.append((await late.scripts.heartbeat("w", join=True, timeout=60, max_deliveries=3)).alive)
        client: Any = late.redis
        answers.append(await client.exists(late.keys.pulse, late.keys.leader, late.keys.workers))
        await late.close()

    def copy_beside(self: reshard.Division, name: str, spider: str, keys: list[bytes]) -> None:
        copy(self, name, spider, keys)
        if name == "queue_of" and not answers:
            asyncio.run(come_back())

    with monkeypatch.context() as patched:
        patched.setattr(reshard.Division, "_copy", copy_beside)
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


async def test_what_was_spilled_comes_back_in_each_shard(on_one_redis: Before, tmp_path: Path) -> None:
    """Nothing is lost, and no pack is removed that another shard needs."""
    packs = FolderPacks(tmp_path / "packs")
    settings = {
        "CRAWL_OVERFLOW_STORE": str(packs.folder),
        "CRAWL_OVERFLOW_TAIL": "500",
        "CRAWL_PAGES_BUDGET_MAX": "0",
    }
    on_one_redis.settle(**settings)
    crawl = await crawl_of(on_one_redis)
    one: Any = crawl.redis
    for domain in DOMAINS:
        await one.hset(crawl.keys.rates, domain, "0.02")
        links = [Link(f"http://{domain}/{number}", priority=1) for number in range(300)]
        found = await Discovery(crawl.scripts, crawl.config).admit(links)
        assert found is not None
        assert found.admitted == 300
    overflow = Overflow(crawl, packs)
    count = 0
    while done := await overflow.spill():
        count += done
    assert count > 200 * len(DOMAINS)
    await drop_queued_excluded(crawl, "s0.example")
    await crawl.close()
    divided = await on_one_redis.divide()
    assert divided.requests == 300 * (len(DOMAINS) - 1)
    [folder] = divided.folders
    after = await on_one_redis.open()
    kept = packs.names(folder)
    urls: Counter[str] = Counter()
    for shard in after.shards:
        client: Any = shard.redis
        refills = Overflow(shard, packs)
        for number in range(100):
            counts = [int(await client.get(key)) for key in (shard.keys.outstanding, shard.keys.overflow)]
            if counts == [0, 0]:
                break
            assert number < 99, counts
            await shard.scripts.lead("leader", ready=True)
            await refills.refill()
            leases = await lease_all(shard)
            urls.update(codec.url_of(entry) for _, entry in leases)
            ends = [Settlement(lease, codec.url_of(entry).split("/")[2], done=True) for lease, entry in leases]
            await shard.scripts.settle("w", ends)
        await refills.sweep()
        assert await client.hlen(shard.keys.packs) == 0
        assert packs.names(folder) == kept
    assert urls == Counter(f"http://{domain}/{number}" for domain in DOMAINS[1:] for number in range(300))
    first = Overflow(after.shards[0], packs)
    while await first.forget():  # what was dropped, and is of any shard
        await forget_dropped(after.shards[0])
    reply = await Discovery(after.shard_for("s0.example").scripts, after.config).admit(
        [Link(f"http://s0.example/{number}", priority=1) for number in range(300)]
    )
    assert reply is not None
    assert reply.admitted == 300
    await after.close()


async def drop_queued_excluded(crawl: State, source: str) -> None:
    """Drop what waits of a source; its extents are still to be read."""
    left = 1
    while left:
        left = (await crawl.scripts.drop_queued(source, "purged", count=500)).left


async def test_a_second_one_is_refused_beside_the_first(
    on_one_redis: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = await crawl_of(on_one_redis)
    await fill(crawl)
    refused: list[str] = []
    copy = reshard.Division._copy

    def copy_beside(self: reshard.Division, name: str, spider: str, keys: list[bytes]) -> None:
        copy(self, name, spider, keys)
        if name == "queue_of":
            with pytest.raises(FrontierInUse) as found:
                on_one_redis.divide_blocking()
            refused.append(str(found.value))

    with monkeypatch.context() as patched:
        patched.setattr(reshard.Division, "_copy", copy_beside)
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
    crawl = await crawl_of(on_one_redis)
    await fill(crawl)
    await crawl.close()
    monkeypatch.setattr(reshard, "_GONE_S", 0.0)  # it has not said anything for so long
    copy = reshard.Division._copy
    taken_over: list[division.Divided] = []

    def hang(self: reshard.Division, name: str, spider: str, keys: list[bytes]) -> None:
        copy(self, name, spider, keys)
        if name == "queue_of":
            monkeypatch.setattr(reshard.Division, "_copy", copy)
            taken_over.append(on_one_redis.divide_blocking())

    monkeypatch.setattr(reshard.Division, "_copy", hang)
    with pytest.raises(FrontierInUse, match="another scrapy reshard has taken the division over"):
        await on_one_redis.divide()
    assert taken_over[0].requests == 240
    assert not any("broke off, and" in said for said in on_one_redis.heard)
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


async def test_halts_of_a_crawl_that_never_ran_come_along(on_one_redis: Before) -> None:
    client = redis.Redis.from_url(on_one_redis.config.redis_url or "")
    client.sadd("crawl:halted", *DOMAINS)
    client.sadd("crawl:excluded", "x.example")
    done = await asyncio.to_thread(on_one_redis.divide_blocking)
    assert (done.left, done.examples) == (0, [])
    with BlockingState.connect(on_one_redis.after) as after:
        halted = [name for shard in after.shards for name in shard.redis.smembers(shard.keys.halted)]
        assert sorted(halted) == sorted(name.encode() for name in DOMAINS)
        assert all(shard.redis.sismember(shard.keys.excluded, "x.example") for shard in after.shards)
    client.close()


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
            CrawlprojectError, match=r"REDIS_URL is \d.* and the Redis Cluster \d.*: it must not be ol"
        ):
            await on_one_redis.divide()
    with BlockingState.connect(on_one_redis.config):
        pass
    await on_one_redis.divide()
    await crawl.close()


async def test_a_node_that_evicts_keys_breaks_it_off(on_one_redis: Before) -> None:
    crawl = await crawl_of(on_one_redis)
    await fill(crawl)
    await crawl.close()
    node = on_one_redis.cluster.owner_of("{crawl:1}:x").client
    node.config_set("maxmemory-policy", "allkeys-random")
    for number in range(3000):
        node.set(f"other:{{crawl:1}}:{number}", b"x" * 1000)
    node.config_set("maxmemory", str(node.info("memory")["used_memory"]))
    try:
        with pytest.raises(CrawlprojectError, match="has evicted keys: set its maxmemory-policy to noeviction"):
            await on_one_redis.divide()
    finally:
        node.config_set("maxmemory", "0")
        node.config_set("maxmemory-policy", "noeviction")
    await on_one_redis.divide()
    after = await on_one_redis.open()
    assert await urls_of_all(after) == ALL
    await after.close()


async def test_keys_that_a_scan_yields_twice_count_once(
    on_one_redis: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Redis' does while its table shrinks."""
    crawl = await crawl_of(on_one_redis)
    await fill(crawl, 20, high_water=120)
    await end_some(crawl, 30)
    scan: Any = redis.Redis.scan_iter

    def twice(self: redis.Redis, *args: Any, **options: Any) -> Any:
        found = list(scan(self, *args, **options))
        yield from found
        yield from found

    with monkeypatch.context() as patched:
        patched.setattr(redis.Redis, "scan_iter", twice)
        done = await on_one_redis.divide()
    assert (done.requests, done.events, done.dead_letters) == (210, 30, 15)
    await crawl.close()


# What breaks off


@pytest.mark.parametrize("seed", range(6))
async def test_one_that_breaks_off_is_begun_anew(
    before: Before, crawl: State, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    await fill(crawl)
    await end_some(crawl, 30)
    chance, calls = random.Random(seed), 0
    gone_s = 0.2
    monkeypatch.setattr(reshard, "_GONE_S", gone_s)
    call: Any = redis.Redis.execute_command
    execute: Any = redis.client.Pipeline.execute

    def dying(of: Any, when: int) -> Any:
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

    for _ in range(4):
        when = chance.randrange(15, 200)  # of some 190
        calls = 0
        with monkeypatch.context() as patched:
            patched.setattr(redis.Redis, "execute_command", dying(call, when))
            patched.setattr(redis.client.Pipeline, "execute", dying(execute, when))
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


@pytest.mark.slow
async def test_while_the_filter_of_before_is_away_nothing_is_taken_in_and_what_is_queued_goes_on(
    on_one_redis: Before, scrapy: Scrapy
) -> None:
    crawl = await crawl_of(on_one_redis)
    await fill(crawl)
    await crawl.close()
    await on_one_redis.divide()
    after = await on_one_redis.open()
    cluster = on_one_redis.cluster
    master = cluster.owner_of(part_namespace("crawl", 0, 1))
    domain = next(one for one in DOMAINS if cluster.owner_of(after.shard_for(one).keys.rates) is not master)
    replica = cluster.replica_of(master)
    replica.kill()
    master.kill()
    shard = after.shard_for(domain)
    with pytest.raises(redis.ConnectionError, match="what was seen before the crawl was divided cannot be asked"):
        await enqueue(shard, [request(domain, 99)])
    assert await lease_all(shard, most=5)
    told = await asyncio.to_thread(
        scrapy, "explain", f"http://{domain}/3.jpg", REDIS_URL=cluster.url, CRAWL_SHARDS=str(SHARDS)
    )
    assert told.returncode == 1
    assert "what was seen before the crawl was divided cannot be asked for: " in told.stderr
    for server in (master, replica):
        server.start()
    until(cluster.is_whole)
    assert (await enqueue(shard, [request(domain, 99), request(domain, 3)])).admitted == 1
    await after.close()


@pytest.mark.slow
async def test_a_master_that_dies_meanwhile_breaks_it_off(
    on_one_redis: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have lost what it had got: begun anew, all is there."""
    crawl = await crawl_of(on_one_redis)
    await fill(crawl)
    await crawl.close()
    cluster = on_one_redis.cluster
    victims: list[Server] = []
    copy = reshard.Division._copy

    def has_taken_over() -> bool:
        with suppress(LookupError):
            return cluster.owner_of("{crawl:1}") is not victims[0]
        return False

    def copy_and_kill(self: reshard.Division, name: str, spider: str, keys: list[bytes]) -> None:
        copy(self, name, spider, keys)
        if name == "queue_of" and not victims:
            victims.append(cluster.owner_of("{crawl:1}"))
            victims[0].kill()
            until(has_taken_over)

    with monkeypatch.context() as patched:
        patched.setattr(reshard.Division, "_copy", copy_and_kill)
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
        "0 sources, 0 requests, 0 events and 0 dead letters of images are in 4 shards, after "
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
        "as it was, delete crawl:layout there"
    ) in done.stderr
    assert scrapy("stats").returncode == 1
    client.delete("crawl:layout")
    assert scrapy("stats").returncode == 0
    assert scrapy("reshard", "--to", "4", *at).returncode == 0
    client.close()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "expected --to N"),
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
