"""Several shards of one crawl on a Redis Cluster: which source is where, and who may join."""

from __future__ import annotations

from collections import Counter

import pytest
from redis.crc import key_slot

from crawlproject import config
from crawlproject.config import Config
from crawlproject.errors import ConfigError
from crawlproject.state.client import BlockingState, State
from crawlproject.state.cluster import topology_of
from crawlproject.state.shards import SLOTS, shard_namespace, shard_of
from tests.state.servers import Cluster


def settings_of(url: str, shards: int, **more: str) -> Config:
    return config.load({"REDIS_URL": url, "CRAWL_SHARDS": str(shards), **more})


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


def test_one_shard_has_the_keys_that_it_had() -> None:
    assert shard_namespace("crawl", 0, 1) == "crawl"
    assert shard_namespace("{b}", 0, 1) == "{b}"


def test_several_shards_need_a_cluster(redis_url: str) -> None:
    with pytest.raises(
        ConfigError, match=r"CRAWL_SHARDS=4 needs a Redis Cluster: set REDIS_URL to redis\+cluster"
    ):
        BlockingState.connect(settings_of(redis_url, 4))


async def test_several_shards_need_a_cluster_for_workers_too(redis_url: str) -> None:
    with pytest.raises(ConfigError, match="CRAWL_SHARDS=4 needs a Redis Cluster"):
        await State(settings_of(redis_url, 4), "images").open()


async def test_each_shard_has_its_keys_its_clock_and_its_sources(cluster: Cluster, cluster_url: str) -> None:
    state = State(settings_of(cluster_url, 4), "images")
    await state.open()
    assert [shard.number for shard in state.shards] == [0, 1, 2, 3]
    assert state is state.shards[0]
    assert len({id(shard.clock) for shard in state.shards}) == 4
    assert len({id(topology_of(shard.redis)) for shard in state.shards}) == 1
    for shard in state.shards:
        assert await shard.scripts.lead("w", ready=True) == 1
        assert shard.count == 4
    mine = state.shard_for("museum")
    assert mine.number == shard_of("museum", 4)
    assert cluster.owner_of(mine.keys.leader).client.get(mine.keys.leader) == b"w"
    pages = mine.beside("pages")
    assert pages.number == mine.number
    assert [shard.keys.spider for shard in pages.shards] == ["pages"] * 4
    assert pages.keys.outstanding == f"{mine.keys.namespace}:pages:outstanding"
    assert pages.keys.users_seeds == "pages:start_urls"
    with BlockingState.connect(settings_of(cluster_url, 4)) as blocking:
        assert [shard.keys for shard in blocking.shards] == [shard.keys for shard in state.shards]
        assert all(shard.redis.get(shard.keys.leader) == b"w" for shard in blocking.shards)
        assert blocking.shard_for("museum").number == mine.number
    await state.close()


async def test_nobody_with_another_number_of_shards_takes_part(cluster_url: str) -> None:
    state = State(settings_of(cluster_url, 4), "images")
    await state.open()
    await state.close()
    for shards in (1, 2):
        says = f"CRAWL_SHARDS is {shards} here and 4 in the crawl of CRAWL_NAMESPACE=crawl: set CRAWL_SHARDS=4, or"
        with pytest.raises(ConfigError, match=says):
            await State(settings_of(cluster_url, shards), "images").open()
        with pytest.raises(ConfigError, match=says):
            BlockingState.connect(settings_of(cluster_url, shards))
    other = State(settings_of(cluster_url, 2, CRAWL_NAMESPACE="other"), "images")
    await other.open()
    await other.close()


async def test_a_crawl_that_began_with_one_shard_keeps_it(cluster_url: str) -> None:
    state = State(settings_of(cluster_url, 1), "images")
    await state.open()
    assert not await state.redis.exists(state.keys.layout)  # one shard: nothing new
    await state.scripts.lead("w", ready=True)
    await state.close()
    with pytest.raises(ConfigError, match="CRAWL_SHARDS is 4 here and 1 in the crawl of CRAWL_NAMESPACE=crawl"):
        await State(settings_of(cluster_url, 4), "images").open()


async def test_a_crawl_of_another_version_is_left_alone(cluster: Cluster, cluster_url: str) -> None:
    cluster.owner_of("{crawl}:layout").client.hset("{crawl}:layout", mapping={"shards": 4, "version": 2})
    with pytest.raises(ConfigError, match="was begun by another version of crawlproject"):
        await State(settings_of(cluster_url, 4), "images").open()
