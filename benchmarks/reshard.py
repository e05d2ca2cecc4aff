"""How long does a division among shards take, and what does the seen filter of before cost afterwards?

    python -m benchmarks.reshard [--requests N] [--sources N] [--seen N] [--events N] [--to N]

A crawl on one Redis (sources with queued requests, what was seen, events) is divided on a cluster of three masters
and three replicas, here. Then seeds are enqueued in one of the shards, as a worker does it, 200 at a time: such as
were seen before, and others; and these in a crawl of as many shards that was never divided.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import tempfile
import time
from array import array
from pathlib import Path
from typing import Any

import redis
from scrapy import Request

from benchmarks.redis_servers import Cluster, Server
from crawlproject import config
from crawlproject.frontier import codec, division
from crawlproject.frontier.dupefilter import digest_of
from crawlproject.spiders.images import ImagesSpider
from crawlproject.state.client import State
from crawlproject.state.scripts import NewRequest

_SPIDER = ImagesSpider()
_BATCH = 200


def request(source: int, number: int, name: str = "s") -> NewRequest:
    """Return a request as a seed leads to it."""
    domain = f"{name}{source}.example"
    url = f"http://{domain}/pictures/of/some/length/{number}.jpg"
    made = Request(url, callback=_SPIDER.parse, meta={"identifier": f"{domain}-{number}"})
    return NewRequest(
        codec.encode(made, _SPIDER), digest_of(f"{domain}-{number}", url), again=False, domain=domain
    )


async def enqueue(shard: State, items: list[NewRequest]) -> int:
    """Enqueue requests; return how many were new."""
    new = 0
    for first in range(0, len(items), _BATCH):
        reply = await shard.scripts.enqueue(
            "w", items[first : first + _BATCH], high_water=10**7, overflow_maxlen=10**7, refuse_unknown=False
        )
        assert reply is not None
        new += reply.admitted
    return new


async def led(settings: config.Config) -> State:
    """Open a crawl that somebody leads, as far as its scripts can tell."""
    state = State(settings, "images")
    await state.open()
    for shard in state.shards:
        await shard.scripts.lead("leader", ready=True)
        await shard.redis.persist(shard.keys.pulse)
    return state


async def fill(settings: config.Config, options: argparse.Namespace) -> None:
    """Put into one Redis what a crawl has there."""
    state = await led(settings)
    share = options.requests // options.sources
    for source in range(options.sources):
        await enqueue(state, [request(source, number) for number in range(share)])
    client: Any = state.redis
    chance = random.Random(1)
    [capacity] = (await client.hget(state.keys.seen_meta, "exact")).split()
    buckets = -(-int(capacity) // 400)
    for first in range(0, buckets, 100):
        pipe = client.pipeline(transaction=False)
        for bucket in range(first, min(first + 100, buckets)):
            some = options.seen // buckets + (bucket < options.seen % buckets)
            if some:
                members = array("i", chance.randbytes(4 * some))
                pipe.sadd(f"{state.keys.seen_of}e0:{bucket:x}", *members)
        await pipe.execute()
    event = '{"source": "s%d.example", "identifier": "' + "x" * 700 + '"}'
    for first in range(0, options.events, 1_000):
        pipe = client.pipeline(transaction=False)
        for number in range(first, min(first + 1_000, options.events)):
            pipe.xadd(state.keys.image_events, {"event": event % (number % options.sources)})
        await pipe.execute()
    await client.delete(state.keys.leader, state.keys.pulse)
    await state.close()


async def looked_up(settings: config.Config, name: str, sources: int, share: int) -> str:
    """Return what it costs to enqueue `share` seeds of each source in one shard; sources begin with `name`."""
    state = await led(settings)
    shard = state.shards[1]
    own = [source for source in range(sources) if state.shard_for(f"{name}{source}.example") is shard]
    items = [request(source, number, name) for number in range(share) for source in own]
    client: Any = shard.redis
    before, began = await client.info("cpu"), time.monotonic()
    new = await enqueue(shard, items)
    took = time.monotonic() - began
    after = await client.info("cpu")
    cpu = sum(after[name] - before[name] for name in ("used_cpu_user", "used_cpu_sys"))
    await state.close()
    each, of_redis = took / len(items) * 1e6, cpu / len(items) * 1e6
    return (
        f"{new} of {len(items)} are new, {each:.0f} us each, {of_redis:.0f} of them the CPU of that shard's Redis"
    )


def main() -> None:
    """Run it, and print what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--sources", type=int, default=12_000)
    parser.add_argument("--seen", type=int, default=1_000_000, help="beside those requests")
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--to", type=int, default=16)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="reshard-") as folder:
        one, cluster = Server(Path(folder)), Cluster(Path(folder))
        try:
            capacity = max(4 * 10**6, options.seen + options.requests)
            here = config.load({"REDIS_URL": one.url, "CRAWL_SEEN_CAPACITY": str(capacity)})
            asyncio.run(fill(here, options))
            there = config.load({"REDIS_URL": cluster.url, "CRAWL_SHARDS": str(options.to)})
            size = redis.Redis.from_url(one.url).info("memory")["used_memory"]
            planned = division.plan(here, there, ["images"]).seconds
            done = division.divide(here, there, ["images"], print)
            print(
                f"{done.requests} requests of {done.sources} sources, {options.seen} more seen, {done.events} "
                f"events, {size / 1e6:.0f} MB: {done.seconds:.1f} s ({planned:.1f} said before), "
                f"{size / 1e6 / done.seconds:.0f} MB/s"
            )
            there_bytes = sum(master.client.info("memory")["used_memory"] for master in cluster.masters())
            own_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            print(
                f"the masters then use {there_bytes / 1e6:.0f} MB; this process used {own_bytes / 1e6:.0f} at most"
            )
            if done.seconds > planned:
                print("LONGER THAN IT SAID")
            size_of = (options.sources, options.requests // options.sources)
            print(f"seeds after it: {asyncio.run(looked_up(there, 's', *size_of))}")
            print(f"others after it: {asyncio.run(looked_up(there, 't', *size_of))}")
            cluster.flush()
            print(f"without it: {asyncio.run(looked_up(there, 't', *size_of))}")
        finally:
            cluster.close()
            one.close()


if __name__ == "__main__":
    main()
