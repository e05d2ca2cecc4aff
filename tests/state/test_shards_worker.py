"""What a worker does with several shards."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace

import pytest
import pytest_asyncio
from redis.exceptions import RedisError
from scrapy import Request
from scrapy.utils.defer import maybe_deferred_to_future

from crawlproject.errors import ConfigError
from crawlproject.extensions.lease_keeper import LeaseKeeper
from crawlproject.frontier import codec
from crawlproject.frontier.discovery import Discovered, Discovery, Link, scripts_of
from crawlproject.frontier.homes import Homes
from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.frontier.seeds import new_request
from crawlproject.state.client import State
from crawlproject.state.cluster import (
    ShardRedis,
    Topology,
    blocking_shard,
    has_replica,
    shard_has_replica,
    topology_of,
)
from crawlproject.state.shards import shard_of
from tests.conftest import scheduler_for, stop_tasks
from tests.state.servers import Cluster
from tests.waiting import until_async

SHARDS = 4
DOMAINS = [f"s{number}.example" for number in range(12)]


@pytest_asyncio.fixture
async def worker(cluster_url: str) -> AsyncIterator[FrontierScheduler]:
    """An open scheduler that does nothing by itself."""
    one = scheduler_for(cluster_url, CRAWL_SHARDS=str(SHARDS))
    assert one.crawler.spider is not None
    await maybe_deferred_to_future(one.open(one.crawler.spider))
    await stop_tasks(one)
    for shard in one.state.shards:
        await shard.scripts.lead("leader", ready=True)
    yield one
    await maybe_deferred_to_future(one.close("finished"))
    await one.state.close()


async def put(worker: FrontierScheduler, domain: str, deliveries: int = 0) -> None:
    """Put a request into the shard of its domain, lost before so many times."""
    request = Request(f"http://{domain}/1.jpg", callback=worker.spider.parse, meta={"identifier": domain})
    new = new_request(request, worker.spider, worker.df)
    shard = worker.state.shard_for(domain)
    lost = type(new)(codec.with_deliveries(new.entry, deliveries), new.digest, again=True, domain=domain)
    await shard.scripts.enqueue("w", [lost], high_water=99, refuse_unknown=False)


async def test_a_worker_that_leases_nothing_is_the_home_of_no_shard(worker: FrontierScheduler) -> None:
    scripts, other = worker.state.scripts, Homes("other", SHARDS)
    await scripts.heartbeat("other", join=True, timeout=60, max_deliveries=3)

    async def homes_of_other() -> int:
        other.note(await scripts.alive(timeout=60, worker="other"))
        return sum(other.is_home_of(shard) for shard in range(SHARDS))

    await worker._keep_homes()
    assert await homes_of_other() < SHARDS
    worker.leasing.pause("storage is away")
    await worker._keep_homes()
    assert await homes_of_other() == SHARDS
    worker.leasing.resume("storage is away")
    await worker._keep_homes()
    assert await homes_of_other() < SHARDS


async def test_a_worker_asks_little_of_shards_that_others_are_the_homes_of(
    cluster: Cluster, cluster_url: str
) -> None:
    """Else what they all ask takes more of Redis than the crawl: 200 workers and 64 shards are 12,800 pairs."""
    one = scheduler_for(cluster_url, CRAWL_SHARDS="16")
    assert one.crawler.spider is not None
    await maybe_deferred_to_future(one.open(one.crawler.spider))
    first = one.state
    others = {f"other-{number}": time.time() * 1e6 for number in range(15)}
    await first.redis.zadd(first.keys.workers, others)

    def calls(command: str) -> int:
        return sum(
            master.client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]
            for master in cluster.masters()
        )

    await until_async(lambda: sum(map(one._homes.is_home_of, range(16))) <= 2)
    await asyncio.sleep(1.5)  # what was begun before ends
    before = {command: calls(command) for command in ("blmove", "fcall")}
    await asyncio.sleep(3)
    a_second = {command: (calls(command) - count) / 3 for command, count in before.items()}
    await maybe_deferred_to_future(one.close("finished"))
    await one.state.close()
    assert a_second["blmove"] < 6  # for seeds, 17 for all shards and where users push
    assert a_second["fcall"] < 14  # to lease from two or three shards, and to carry; 16 more to carry from all


async def test_of_a_worker_that_rested_and_is_gone_nothing_stays(worker: FrontierScheduler) -> None:
    scripts, keys, db = worker.state.scripts, worker.state.keys, worker.state.redis
    assert "gone" not in await scripts.alive(timeout=60, worker="gone", rests=True)
    until = await db.zscore(keys.resting, "gone")
    assert until is not None
    await db.zadd(keys.resting, {"gone": until - 10_000_001})
    await scripts.alive(timeout=60)
    assert not await db.exists(keys.resting)


async def test_what_a_spider_yields_is_stored_in_the_shard_of_its_source(worker: FrontierScheduler) -> None:
    """Where the catalogue knows the domain: of another source than the domain's name says."""
    domain = DOMAINS[0]
    source = next(
        one for one in ("museum", "gallery", "archive") if shard_of(one, SHARDS) != shard_of(domain, SHARDS)
    )
    for shard in worker.state.shards:
        fence = await shard.scripts.lead("leader", ready=True)
        assert fence is not None
        await shard.scripts.set_rates(fence, [(source, 5.0, 5.0)], {domain: source}, {}, {source: f" {domain} "})
    meta = {"identifier": "1", "depth": 1}
    assert worker.enqueue_request(Request(f"http://{domain}/1.jpg", callback=worker.spider.parse, meta=meta))
    await worker._store_last()
    assert not worker._unstored
    counted = [await shard.redis.get(shard.keys.outstanding) for shard in worker.state.shards]
    assert [bool(count) for count in counted] == [shard_of(source, SHARDS) == number for number in range(SHARDS)]


async def test_links_are_admitted_to_the_shards_of_their_sources(worker: FrontierScheduler) -> None:
    domains = DOMAINS[:6]
    source = next(
        one for one in ("museum", "gallery", "archive") if shard_of(one, SHARDS) != shard_of(domains[0], SHARDS)
    )
    for shard in worker.state.shards:
        fence = await shard.scripts.lead("leader", ready=True)
        assert fence is not None
        await shard.scripts.set_rates(
            fence, [(source, 5.0, 5.0)], {domains[0]: source}, {}, {source: f" {domains[0]} "}
        )
    links = Discovery(scripts_of(worker.state), worker.state.bounds)
    found = await links.admit(Link(f"http://{domain}/{number}") for domain in domains for number in range(3))
    assert found == Discovered(admitted=18)
    again = Discovery(scripts_of(worker.state), worker.state.bounds)  # without what the first one remembers
    assert await again.admit(Link(f"http://{domain}/0") for domain in domains) == Discovered(known=6)
    expected = Counter(shard_of(one, SHARDS) for one in (source, *domains[1:]) for _ in range(3))
    counted = [int(await shard.redis.get(shard.keys.outstanding) or 0) for shard in worker.state.shards]
    assert counted == [expected[number] for number in range(SHARDS)]


async def test_a_worker_stops_when_it_comes_back_to_a_crawl_with_other_shards(
    worker: FrontierScheduler, cluster: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The crawl was begun anew while the worker was silent."""
    keeper, stopped = LeaseKeeper.from_crawler(worker.crawler), asyncio.Event()
    monkeypatch.setattr(keeper, "config", replace(keeper.config, heartbeat_timeout=0.6))
    keeper.spider_opened()
    await keeper._loops.stop()
    shard = worker.state.shards[2]

    async def close(reason: str) -> None:
        stopped.set()

    monkeypatch.setattr(worker.crawler.engine, "close_spider_async", close, raising=False)
    await shard.redis.zrem(shard.keys.workers, worker.state.worker_id)
    await keeper._beat(shard)
    assert "its leases of shard 2 of 4 have been returned to the queues" in caplog.text
    assert await shard.redis.zscore(shard.keys.workers, worker.state.worker_id) is not None
    assert not stopped.is_set()
    cluster.owner_of("{crawl}:layout").client.hset("{crawl}:layout", "shards", 8)
    await shard.redis.zrem(shard.keys.workers, worker.state.worker_id)
    await keeper._beat(shard)
    assert "This worker stops: CRAWL_SHARDS is 4 here and 8 in the crawl of CRAWL_NAMESPACE=crawl" in caplog.text
    await asyncio.wait_for(stopped.wait(), 5)
    assert await shard.redis.zscore(shard.keys.workers, worker.state.worker_id) is None


async def test_a_worker_that_had_not_joined_a_shard_was_not_silent_there(
    worker: FrontierScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    """That was away when the worker began."""
    shard, worker_id = worker.state.shards[2], worker.state.worker_id
    await shard.redis.zrem(shard.keys.workers, worker_id)
    assert worker.worker.joined == set(range(SHARDS))
    worker.worker.joined.remove(2)
    keeper = LeaseKeeper.from_crawler(worker.crawler)
    keeper.config = replace(keeper.config, heartbeat_timeout=0.6)
    keeper.spider_opened()
    await keeper._loops.stop()
    await keeper._beat(shard)
    assert "silent" not in caplog.text
    assert await shard.redis.zscore(shard.keys.workers, worker_id) is not None
    await shard.redis.zrem(shard.keys.workers, worker_id)
    await keeper._beat(shard)
    assert "This worker was silent for too long: its leases of shard 2 of 4" in caplog.text


async def test_a_worker_with_another_number_of_shards_does_not_start(
    worker: FrontierScheduler, cluster_url: str
) -> None:
    other = scheduler_for(cluster_url, CRAWL_SHARDS="8")
    assert other.crawler.spider is not None
    with pytest.raises(ConfigError, match="CRAWL_SHARDS is 8 here and 4 in the crawl of CRAWL_NAMESPACE=crawl"):
        await maybe_deferred_to_future(other.open(other.crawler.spider))


async def test_what_was_found_is_with_a_replica_before_the_lease_of_its_page_ends(
    worker: FrontierScheduler, cluster: Cluster
) -> None:
    """That lease may end in another shard, whose master lives on when one that knows of a link fails."""
    links = Discovery(scripts_of(worker.state), worker.state.bounds)
    domain = DOMAINS[0]
    meta = {"identifier": "1", "depth": 1}
    assert worker.enqueue_request(Request(f"http://{domain}/1.jpg", callback=worker.spider.parse, meta=meta))
    replicas = [cluster.replica_of(master).process for master in cluster.masters()]
    for replica in replicas:
        replica.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(RedisError, match="no replica has confirmed discover within 1000 ms"):
            await links.admit([Link(f"http://{domain}/a")])
        with pytest.raises(RedisError, match="no replica has confirmed enqueue within 1000 ms"):
            await worker._store_new(shard_of(domain, SHARDS))
    finally:
        for replica in replicas:
            replica.send_signal(signal.SIGCONT)
    await until_async(cluster.is_whole)
    await worker._store_last()
    assert not worker._unstored
    assert await Discovery(scripts_of(worker.state), worker.state.bounds).admit([Link(f"http://{domain}/a")])
    counted = [await shard.redis.get(shard.keys.outstanding) for shard in worker.state.shards]
    assert sum(int(count or 0) for count in counted) == 2


def first_shard(worker: FrontierScheduler) -> tuple[State, ShardRedis, Topology]:
    """Return a shard, the client that leads to it, and what that knows of the cluster."""
    shard = worker.state.shards[0]
    client, topology = shard.redis, topology_of(shard.redis)
    assert isinstance(client, ShardRedis)
    assert topology is not None
    return shard, client, topology


async def test_a_replica_that_has_come_back_is_waited_for_before_the_cluster_says_so(
    worker: FrontierScheduler, cluster: Cluster
) -> None:
    shard, client, topology = first_shard(worker)
    with closing(blocking_shard(topology, shard.keys.seeds)) as command:
        slot = client.slot
        alone = (await slot.find())._replace(replicas=0)
        slot._owner = alone
        assert has_replica(command)
        slot._owner = alone
        assert await shard_has_replica(client)
        replica = cluster.replica_of(cluster.owner_of(shard.keys.seeds))
        replica.kill()

        async def is_alone() -> bool:
            slot._owner = alone  # what a look a moment before has found
            return not await shard_has_replica(client) and not has_replica(command)

        try:
            assert await until_async(is_alone)  # its master hears of it a moment later
        finally:
            replica.start()
    await until_async(cluster.is_whole)


@pytest.mark.slow
async def test_a_replica_that_hangs_is_waited_for_some_seconds_only(
    worker: FrontierScheduler, cluster: Cluster
) -> None:
    """Its master keeps it online for a minute."""
    shard, client, topology = first_shard(worker)
    master = cluster.owner_of(shard.keys.seeds)
    replica = cluster.replica_of(master)
    replica.process.send_signal(signal.SIGSTOP)
    assert await shard_has_replica(client)  # nobody knows yet

    async def goes_on() -> bool:
        return not await shard_has_replica(client)

    try:
        assert await until_async(goes_on, 15)
        assert master.client.info("replication")["slave0"]["state"] == "online"
        with closing(blocking_shard(topology, shard.keys.seeds)) as command:
            assert not has_replica(command)
    finally:
        replica.process.send_signal(signal.SIGCONT)
    await until_async(cluster.is_whole)

    async def is_back() -> bool:
        return await shard_has_replica(client)

    assert await until_async(is_back)
