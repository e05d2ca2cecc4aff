"""A crawl of one shard, to be divided; and what tests ask of it before and after."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from typing import Any

from scrapy import Request

from crawlproject import config
from crawlproject.frontier import codec, division
from crawlproject.frontier.dupefilter import digest_of
from crawlproject.politeness.slots import DOUBT_S
from crawlproject.spiders.images import ImagesSpider
from crawlproject.state.client import BlockingState, State
from crawlproject.state.scripts import NewRequest, Settlement
from crawlproject.state.shards import shard_of
from tests.leading import lead
from tests.state.servers import Cluster

SHARDS = 4
DOMAINS = [f"s{number}.example" for number in range(12)]
SPIDER = ImagesSpider()
ALL = Counter(f"http://{domain}/{place}.jpg" for domain in DOMAINS for place in range(20))


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

    def into(self, shards: int) -> None:
        """Have it become a crawl of so many shards."""
        self.after = replace(self.after, shards=shards)

    def to(self, url: str) -> None:
        """Have it go to where a URL says."""
        self.after = replace(self.after, redis_url=url)

    def divide_blocking(self) -> division.Divided:
        return division.divide(self.config, self.after, ["images", "pages"], self.heard.append)

    async def give_up(self) -> division.GivenUp:
        """Give up the division that broke off."""
        return await asyncio.to_thread(division.give_up, self.config, self.after)

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
        await asyncio.sleep(DOUBT_S + 0.1)  # another server has the clock now
        return one


async def crawl_of(before: Before) -> State:
    """Open a crawl that is led, without workers."""
    one = State(before.config, "images")
    await one.open()
    await lead(one)
    return one


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


async def fill_closed(before: Before) -> None:
    """Fill a crawl that nobody works on then."""
    crawl = await crawl_of(before)
    await fill(crawl)
    await crawl.close()


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
