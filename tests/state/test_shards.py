"""Several shards of one crawl: which source is where, which one a worker serves, and who may join."""

from __future__ import annotations

from collections import Counter

import pytest
import redis
from redis.crc import key_slot

from crawlproject.errors import ConfigError, RedisUnavailable
from crawlproject.state.shards import SLOTS, shard_namespace, shard_of
from tests.state.calls.calls import join
from tests.state.servers import Cluster, Server, opened


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
