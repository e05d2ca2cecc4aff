"""Several shards of one crawl: which source is where, which one a worker serves, and who may join."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import redis
from redis.crc import key_slot
from scrapy import Request

from crawlproject import config
from crawlproject.errors import ConfigError, RedisUnavailable
from crawlproject.extensions import membership
from crawlproject.extensions.membership import Membership, UnservedShards
from crawlproject.frontier.scheduler import MOVES_TO, FrontierScheduler
from crawlproject.frontier.seeds import new_request
from crawlproject.leader import Leader
from crawlproject.state.client import State
from crawlproject.state.shards import SLOTS, shard_namespace, shard_of
from tests.conftest import open_scheduler, stop_tasks
from tests.shards import domain_in
from tests.state.calls.calls import entry, join, lead, lease
from tests.state.calls.calls import put as put_entries
from tests.state.servers import Cluster, Server, opened
from tests.waiting import PATIENCE_S, until_async

SHARDS = 4


@asynccontextmanager
async def idle_worker(redis_url: str, **settings: Any) -> AsyncIterator[FrontierScheduler]:
    """Open the scheduler of a worker, which does nothing by itself."""
    async with open_scheduler(redis_url, CRAWL_SHARDS=str(SHARDS), **settings) as one:
        await stop_tasks(one)
        yield one


@pytest_asyncio.fixture
async def worker(redis_url: str) -> AsyncIterator[FrontierScheduler]:
    """A worker of shard 1; all shards have leaders."""
    async with idle_worker(redis_url, CRAWL_SHARD="1", MAX_IDLE_TIME_BEFORE_CLOSE="0.1") as one:
        for shard in one.state.shards:
            await lead(shard)
        yield one


def found(worker: FrontierScheduler, domain: str) -> Request:
    """Return a request that was found on a page."""
    meta = {"identifier": domain, "depth": 1}
    return Request(f"http://{domain}/1.jpg", callback=worker.spider.parse, meta=meta)


async def put(worker: FrontierScheduler, shard: State) -> None:
    """Put a request into a shard."""
    domain = domain_in(shard.number, SHARDS)
    assert await shard.scripts.enqueue("w", [new_request(found(worker, domain), worker.spider)])


async def test_workers_choose_the_shards_with_the_fewest(redis_url: str) -> None:
    settings = config.load({"REDIS_URL": redis_url, "CRAWL_SHARDS": str(SHARDS)})
    states = [State(settings, "images") for _ in range(SHARDS + 1)]
    await asyncio.gather(*(state.open(serves=True) for state in states[:SHARDS]))
    assert sorted(state.number for state in states[:SHARDS]) == list(range(SHARDS))
    for state in states[:SHARDS]:
        if state.number != 2:
            await join(state)
    await states[SHARDS].open(serves=True)
    assert states[SHARDS].number == 2
    given = State(replace(settings, shard=(3, 1)), "images")
    await given.open()
    assert given.number in {1, 3}
    for state in (*states, given):
        await state.close()


async def test_what_may_not_wait_for_another_shard_stays_with_the_worker(redis_url: str) -> None:
    async with idle_worker(redis_url, CRAWL_SHARD="1", CRAWL_OVERFLOW_MAXLEN=str(SHARDS)) as worker:
        await lead(worker.state)
        await put(worker, worker.state)
        await worker.queue.fill()
        (lease,) = worker.queue.leases.values()
        lease.reached_spider = True
        for number in range(2):
            assert worker.enqueue_request(found(worker, domain_in(2, SHARDS, f"s{number}-")))
        await worker._end_leases()
        assert (len(worker._new), lease.unstored) == (1, 1)
        await worker.state.redis.delete(f"{worker.state.keys.foreign_of}2")
        await worker._end_leases()
        assert (len(worker._new), lease.unstored) == (0, 0)


async def test_a_worker_closes_only_when_all_shards_are_idle(worker: FrontierScheduler) -> None:
    async def looks(count: int) -> bool:
        return [await worker._is_idle() for _ in range(count)][-1]

    assert await looks(2)
    other = worker.state.shards[3]
    await put(worker, other)
    assert not await looks(2)
    await other.redis.flushdb()
    for shard in worker.state.shards:
        await lead(shard)
    await worker.state.redis.lpush(worker.state.keys.users_seeds, "http://a.example/1.jpg")
    assert not await looks(2)
    await worker.state.redis.delete(worker.state.keys.users_seeds)
    assert await looks(2)
    assert worker.enqueue_request(found(worker, domain_in(2, SHARDS)))
    await worker._end_leases()
    assert not await looks(2)


async def test_the_first_of_several_workers_moves_to_a_shard_without_any(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "_PATIENCE_S", 0.2)
    monkeypatch.delenv(MOVES_TO, raising=False)
    async with idle_worker(redis_url, CRAWL_SHARD="1") as one, idle_worker(redis_url, CRAWL_SHARD="1") as two:
        first, second = sorted((one, two), key=lambda worker: worker.state.worker_id)
        for number in (0, 3):
            await join(one.state.shards[number], timeout=3600)
        closed: list[str] = []

        async def close(reason: str) -> None:
            closed.append(reason)

        lookers = {}
        for worker in (first, second):
            monkeypatch.setattr(worker.crawler.engine, "close_spider_async", close, raising=False)
            lookers[worker] = UnservedShards.from_crawler(worker.crawler)
            lookers[worker].spider_opened()
            await lookers[worker].loops.stop()
        await lookers[first].look()
        await asyncio.sleep(0.3)
        await lookers[second].look()
        await second.state.redis.zrem(second.state.keys.workers, second.state.worker_id)
        await lookers[first].look()  # it is alone in its shard
        assert MOVES_TO not in os.environ
        await join(second.state, second.state.worker_id)
        for _ in range(2):
            await lookers[first].look()
            await asyncio.sleep(0.3)
        assert os.environ[MOVES_TO] == "2"
        assert closed == ["moved"]
        assert not await second.state.shards[2].join(0)  # one is enough
        assert await second.state.shards[2].workers() == [first.state.worker_id]
    async with idle_worker(redis_url) as moved:
        assert moved.state.number == 2
        assert MOVES_TO not in os.environ


@pytest_asyncio.fixture
async def keeper(worker: FrontierScheduler) -> Membership:
    """What keeps that worker's membership; it does nothing by itself."""
    one = Membership.from_crawler(worker.crawler)
    one.config = replace(one.config, heartbeat_timeout=6)  # a beat each second
    one.spider_opened()
    await one.spider_closed()
    return one


async def test_leases_whose_reply_was_lost_are_returned_by_the_second_beat(
    worker: FrontierScheduler, keeper: Membership
) -> None:
    state: Any = worker.state
    await put(worker, state)
    await worker.queue.fill()
    await put_entries(state, [entry("lost")], domain_in(state.number, SHARDS, "other"))
    assert (await lease(state, worker=state.worker_id)).grants
    for left in (2, 1):
        await keeper._beat()
        await worker.queue.flush()
        assert await state.redis.hlen(state.keys.leases_of + state.worker_id) == left
    assert len(worker.queue.leases) == 1


async def test_a_worker_stops_when_it_comes_back_to_a_crawl_with_other_shards(
    worker: FrontierScheduler,
    keeper: Membership,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped, state = asyncio.Event(), worker.state

    async def close(reason: str) -> None:
        stopped.set()

    monkeypatch.setattr(worker.crawler.engine, "close_spider_async", close, raising=False)
    await put(worker, state)
    await worker.queue.fill()
    assert worker.queue.leases
    await state.redis.zrem(state.keys.workers, state.worker_id)
    await state.redis.delete(state.keys.leases_of + state.worker_id)
    await keeper._beat()
    assert not worker.queue.leases  # others may have them
    assert "This worker was silent for too long: its leases have been returned" in caplog.text
    assert await state.redis.zscore(state.keys.workers, state.worker_id) is not None
    assert not stopped.is_set()
    await state.redis.set("crawl:layout", 8)
    await state.redis.zrem(state.keys.workers, state.worker_id)
    await keeper._beat()
    assert "This worker stops: CRAWL_SHARDS is 4 here and 8 in the crawl of CRAWL_NAMESPACE=crawl" in caplog.text
    await asyncio.wait_for(stopped.wait(), PATIENCE_S)
    assert await state.redis.zscore(state.keys.workers, state.worker_id) is None


async def test_each_leader_publishes_its_sources_and_whose_the_others_domains_are(
    worker: FrontierScheduler, tmp_path: Path
) -> None:
    sources = [domain_in(number, SHARDS, "museum") for number in range(SHARDS)]
    rows = [
        {"source_name": name, "image_count": 0, "hosts": [f"x{number}.example"]}
        for number, name in enumerate(sources)
    ]
    (tmp_path / "c").write_text(json.dumps(rows))
    settings = replace(worker.config, sources=str(tmp_path / "c"))
    redis: Any = worker.state.redis
    leaders = [Leader(settings, shard) for shard in worker.state.shards]
    for shard, one in zip(worker.state.shards, leaders, strict=True):
        await redis.delete(shard.keys.leader)
        one.start()

    async def are_published() -> bool:
        keys = [shard.keys for shard in worker.state.shards]
        hosts = [await redis.hlen(one.hosts) for one in keys]
        rates = [await redis.hkeys(one.rates) for one in keys]
        return hosts == [SHARDS] * SHARDS and rates == [[source.encode()] for source in sources]

    await until_async(are_published)
    for one in leaders:
        await one.stop()


async def test_a_worker_that_chooses_a_shard_kills_no_requests_of_one_that_is_silent(redis_url: str) -> None:
    """Not when a reply is lost and the client repeats the call, either."""
    settings = config.load({"REDIS_URL": redis_url, "CRAWL_SHARDS": str(SHARDS)})
    state = State(settings, "images")
    await state.open()
    await state.redis.zadd(state.keys.workers, {"silent": 1.0})
    await state.redis.hset(state.keys.leases_of + "silent", "1.0:museum", bytes((1, 0, 0)) + b"x")
    for _ in range(2):
        assert await state.join(SHARDS)
    assert await state.redis.xlen(state.keys.dead) == 0
    await state.close()


def test_sources_are_spread_over_the_shards_and_stay_where_they_are() -> None:
    assert shard_of("museum", 1) == 0
    assert [shard_of(source, 16) for source in ("museum", "zürich.example", "b\udcff")] == [9, 7, 10]
    counts = Counter(shard_of(f"source-{number}", 16) for number in range(16_000))
    assert sorted(counts) == list(range(16))
    assert min(counts.values()) > 850


@pytest.mark.parametrize("shards", [2, 4, 16, 64, 256])
def test_the_slots_of_the_shards_are_spread_over_those_of_the_cluster(shards: int) -> None:
    names = [shard_namespace("{crawl}", number, shards) for number in range(shards)]
    slots = [key_slot(f"{name}:outstanding".encode()) for name in names]
    assert [slot * shards // SLOTS for slot in slots] == list(range(shards))
    assert len(set(names)) == shards
    assert shard_namespace("crawl", 0, shards) == names[0]


async def test_each_shard_has_its_keys_its_clock_and_its_sources(cluster: Cluster, cluster_url: str) -> None:
    state = await opened(cluster_url, CRAWL_SHARDS=4)
    assert [shard.number for shard in state.shards] == [0, 1, 2, 3]
    assert state is state.shards[state.number]
    assert len({id(shard.clock) for shard in state.shards}) == 4
    for shard in state.shards:
        assert await shard.scripts.lead("w", ready=True) == 1
        assert shard.count == 4
    mine = state.shard_for("museum")
    assert mine.number == shard_of("museum", 4)
    assert cluster.owner_of(mine.keys.leader).client.get(mine.keys.leader) == b"w"
    pages = mine.beside("pages")
    assert pages.number == mine.number
    assert pages is pages.shards[mine.number]
    assert [shard.keys.spider for shard in pages.shards] == ["pages"] * 4
    assert pages.keys.counters == f"{mine.keys.namespace}:pages:counters"
    assert pages.keys.users_seeds == "pages:start_urls"
    await state.close()


async def test_one_redis_has_several_shards_and_so_has_one_a_shard(server: Server, redis_url: str) -> None:
    for url in (redis_url, f"{server.url} {redis_url}"):
        state = await opened(url, 1, CRAWL_SHARDS=2)
        assert state.number == 1
        for shard in state.shards:
            assert await shard.scripts.lead("w", ready=True) == 1
        async with state.client_for("some key") as users:
            await users.set("some key", url)
        await state.close()
    assert server.client.get("some key") == f"{server.url} {redis_url}".encode()
    with redis.Redis.from_url(redis_url) as client:
        assert client.get("some key") == redis_url.encode()
        first, second = (shard_namespace("crawl", number, 2) for number in range(2))
        assert client.exists(f"{first}:leader", f"{second}:leader") == 2
        assert server.client.exists(f"{first}:leader", f"{second}:leader") == 1


async def test_it_serves_none_that_is_away(server: Server, redis_url: str) -> None:
    url = f"{server.url} {redis_url}"
    state = await opened(url, 1, CRAWL_SHARDS=2)
    await join(state)
    await state.close()
    server.close()
    state = await opened(
        url, CRAWL_SHARDS=2
    )  # the first shard has the note of how many there are, and this one has, too
    assert state.number == 1
    assert await state.scripts.alive(timeout=30) == ["w"]
    await state.close()
    with pytest.raises(RedisUnavailable, match=f":{server.port}"):
        await opened(url, 0, CRAWL_SHARDS=2)


async def test_nobody_with_another_number_of_shards_takes_part(cluster_url: str) -> None:
    await (await opened(cluster_url, CRAWL_SHARDS=4)).close()
    for shards in (1, 2):
        says = f"CRAWL_SHARDS is {shards} here and 4 in the crawl of CRAWL_NAMESPACE=crawl: set CRAWL_SHARDS=4, or"
        with pytest.raises(ConfigError, match=says):
            await opened(cluster_url, CRAWL_SHARDS=shards)
    await (await opened(cluster_url, CRAWL_SHARDS=2, CRAWL_NAMESPACE="other")).close()


async def test_a_crawl_that_began_with_one_shard_keeps_it(cluster_url: str) -> None:
    state = await opened(cluster_url, CRAWL_SHARDS=1)
    assert not await state.redis.exists(state.keys.layout)  # one shard: nothing new
    await state.scripts.lead("w", ready=True)
    await state.close()
    with pytest.raises(ConfigError, match="CRAWL_SHARDS is 4 here and 1 in the crawl of CRAWL_NAMESPACE=crawl"):
        await opened(cluster_url, CRAWL_SHARDS=4)
