"""What a crawl of one shard has is in its shards afterwards: nothing is lost, doubled, or fetched again."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import redis

from crawlproject import config, controls
from crawlproject.errors import CrawlprojectError
from crawlproject.frontier import codec
from crawlproject.frontier.discovery import Discovery, Link
from crawlproject.frontier.dropped import drop_queued, forget_dropped
from crawlproject.frontier.overflow import Overflow
from crawlproject.sinks.dataset import Dataset
from crawlproject.sinks.jsonlines import EventFile
from crawlproject.sinks.parquet import ParquetForm
from crawlproject.sinks.sharded_lines import ShardedEventFile
from crawlproject.state import reshard_copy
from crawlproject.state.client import BlockingState, State
from crawlproject.state.readers import StreamReader
from crawlproject.state.reshard_copy import Division
from crawlproject.state.scripts import LinkGroup, Settlement
from crawlproject.state.seen import seen_filter_notes
from crawlproject.state.seen_before import part_namespace
from crawlproject.state.shards import shard_namespace, shard_of
from crawlproject.storage.packs import FolderPacks
from crawlproject.storage.parts import FolderParts
from tests.conftest import Scrapy
from tests.state.dividing import (
    ALL,
    DOMAINS,
    SHARDS,
    Before,
    BrokenOff,
    crawl_of,
    end_some,
    enqueue,
    fill,
    fill_closed,
    lease_all,
    request,
    urls_of_all,
)
from tests.waiting import until


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
    monkeypatch.setattr(reshard_copy, "_PART_BYTES", part_bytes)
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
                before = path.stat().st_size
                patched.setattr(StreamReader, "note", lambda self, length: None if length == before else die())
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


async def test_a_node_that_evicts_keys_breaks_it_off(on_one_redis: Before) -> None:
    await fill_closed(on_one_redis)
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


@pytest.mark.parametrize(
    ("name", "where", "said"),
    [
        (
            "queue_of",
            shard_namespace("crawl", 1, SHARDS) + ":images:queue:",
            r"shard 1 has \d+ requests of images and counts \d+0: ",
        ),
        (
            "seen_of",
            part_namespace("crawl", 0, 1) + ":images:seen:",
            r"the shards have \d+ keys of the seen filter of images and the crawl \d+",
        ),
    ],
    ids=["requests", "what was seen"],
)
async def test_what_is_missing_in_the_shards_in_the_end_breaks_it_off(
    on_one_redis: Before, monkeypatch: pytest.MonkeyPatch, name: str, where: str, said: str
) -> None:
    """It is counted there, whatever the division believes to have written."""
    await fill_closed(on_one_redis)
    copy = Division._copy

    lost: list[bytes] = []

    def lose(self: Division, copied: str, spider: str, keys: list[bytes]) -> None:
        copy(self, copied, spider, keys)
        if copied == name and not lost:
            client = on_one_redis.cluster.owner_of(where).client
            lost.extend(
                [key for key in client.scan_iter(match=f"{where}*", count=1000) if b"_meta" not in key][:1]
            )
            client.delete(*lost)

    with monkeypatch.context() as patched:
        patched.setattr(Division, "_copy", lose)
        with pytest.raises(CrawlprojectError, match=said):
            await on_one_redis.divide()
    await on_one_redis.divide()


@pytest.mark.slow
async def test_while_the_filter_of_before_is_away_nothing_is_taken_in_and_what_is_queued_goes_on(
    on_one_redis: Before, scrapy: Scrapy
) -> None:
    await fill_closed(on_one_redis)
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
