"""What the real carriers bring between real shards, when they die before any of their lines."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from scrapy import Request
from scrapy.utils.defer import maybe_deferred_to_future

from crawlproject import config
from crawlproject.frontier.dupefilter import digest_of
from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.frontier.seeds import SeedRouter
from crawlproject.state.client import State
from crawlproject.state.crossings import Carrier, SeedOutboxes
from crawlproject.state.found_elsewhere import send_links, send_requests
from crawlproject.state.scripts import LinkGroup, NewRequest, Settlement
from crawlproject.state.shards import shard_of
from tests.conftest import scheduler_for, stop_tasks
from tests.leading import lead
from tests.sinks.lines import before_line
from tests.state.servers import Cluster

SHARDS = 4
DOMAINS = [f"s{number}.example" for number in range(8)]
FILES = ("crawlproject/state/crossings.py", "crawlproject/frontier/seeds.py")
FILES_OF_FOUND = ("crawlproject/state/crossings.py", "crawlproject/state/found_elsewhere.py")
ENTRY = b"\x01\x00\x00\x80"


class Killed(BaseException):
    """The worker dies."""


@pytest_asyncio.fixture
async def state(cluster_url: str) -> AsyncIterator[State]:
    one = State(config.load({"REDIS_URL": cluster_url, "CRAWL_SHARDS": str(SHARDS)}), "images")
    await one.open()
    for shard in one.shards:
        await lead(shard)
        await shard.scripts.heartbeat("w", join=True, timeout=3600, max_deliveries=3)
    yield one
    await one.close()


async def carry_all(state: State) -> None:
    """Divide what users push, and bring all that is in outboxes, as the tasks of a worker do."""
    outboxes = SeedOutboxes(state)
    try:
        users: Any = outboxes._redis
        if await users.exists(outboxes._users):  # else it waits for a second
            await SeedRouter(outboxes, SHARDS, lambda line: Request(line.decode())).route()
        for number in range(SHARDS):
            await outboxes.carrier.carry(number)
        for shard in state.shards:
            carrier = Carrier.of_shard(shard)
            for number in range(SHARDS):
                await carrier.carry(number)
    finally:
        await outboxes.close()


async def send_request(state: State, name: str) -> None:
    """Have a lease end in a request for a source of another shard."""
    here = state.shard_for(DOMAINS[0])
    other = next(domain for domain in DOMAINS if shard_of(domain, SHARDS) != here.number)
    item = NewRequest(ENTRY, digest_of("", name), again=True, domain=DOMAINS[0])
    await here.scripts.enqueue("w", [item], high_water=10**6, refuse_unknown=False)
    redis: Any = here.redis
    await redis.delete(here.keys.slots)
    reply = await here.scripts.lease(*("w", 1), rooms={}, room=1, horizon=9, dead_maxlen=9)
    [grant] = reply.grants
    entry = ENTRY + name.encode()
    await here.scripts.settle("w", [Settlement(grant.id, DOMAINS[0], entry=entry, domain=other)])


async def test_each_arrives_once_though_carriers_die_before_any_line(state: State, cluster: Cluster) -> None:
    users = cluster.owner_of("images:start_urls").client
    seeds: list[bytes] = []
    names: list[str] = []
    number, has_died = 0, True
    while has_died:
        some = [f"http://{domain}/{number}.jpg".encode() for domain in DOMAINS[:3]]
        users.lpush("images:start_urls", *some)
        await send_request(state, f"request {number}")
        seeds, names = seeds + some, [*names, f"request {number}"]

        def die() -> None:
            raise Killed

        sys.settrace(before_line(FILES, number, die))
        try:
            await carry_all(state)
            has_died = False
        except Killed:
            pass
        finally:
            sys.settrace(None)
        await carry_all(state)  # the next worker brings what is left
        number += 1
    assert number > 40  # lines, of which each was the last one once
    found: Counter[bytes] = Counter()
    outstanding = 0
    for shard in state.shards:
        redis: Any = shard.redis
        there = await redis.lrange(shard.keys.seeds, 0, -1)
        assert {shard_of(seed.decode().split("/")[2], SHARDS) for seed in there} <= {shard.number}
        found.update(there)
        for key in await redis.keys(shard.keys.queue_of + "*"):
            if key.startswith(shard.keys.queue_of.encode()):
                found.update(entry[len(ENTRY) :] for entry in await redis.lrange(key, 0, -1))
        outstanding += int(await redis.get(shard.keys.outstanding) or 0)
    assert found == Counter([*seeds, *(name.encode() for name in names)])
    assert outstanding == len(names)


async def send_found(here: State, domain: str, number: int) -> None:
    """Have what was found on pages wait for the shard of a domain, which was away."""
    to, options = shard_of(domain, SHARDS), {"high_water": 10**6, "refuse_unknown": False}
    link, yielded = f"link {number}", f"yielded {number}"
    group = LinkGroup(domain, None, [ENTRY + link.encode()], [digest_of("", link)], [None])
    more = {"overflow_maxlen": 10**6, "budget": None, "most_outstanding": None}
    assert await send_links(here, to, [group], {**options, **more, "sitemaps": None}, most=None)
    request = NewRequest(ENTRY + yielded.encode(), digest_of("", yielded), again=False, domain=domain)
    assert await send_requests(here, to, [request], options, most=None)


async def test_what_was_found_arrives_once_though_carriers_die_before_any_line(state: State) -> None:
    here, there = state.shards[:2]
    domain = next(one for one in DOMAINS if shard_of(one, SHARDS) == there.number)
    carrier, names, number, has_died = Carrier.of_shard(here), list[str](), 0, True
    while has_died:
        await send_found(here, domain, number)
        names += [f"link {number}", f"yielded {number}"]

        def die() -> None:
            raise Killed

        sys.settrace(before_line(FILES_OF_FOUND, number, die))
        try:
            await carrier.carry(there.number)
            has_died = False
        except Killed:
            pass
        finally:
            sys.settrace(None)
        await carrier.carry(there.number)
        number += 1
    assert number > 60
    redis: Any = there.redis
    lists = [f"{prefix}0:{domain}" for prefix in (there.keys.queue_of, there.keys.overflow_of)]
    found = [entry for one in lists for entry in await redis.lrange(one, 0, -1)]
    assert Counter(entry[len(ENTRY) :].decode() for entry in found) == Counter(names)
    counts = await redis.mget(there.keys.outstanding, there.keys.overflow)
    assert sum(map(int, counts)) == len(names)


async def test_what_crosses_is_with_a_replica_before_either_side_forgets_it(
    state: State, cluster: Cluster
) -> None:
    """What is offered in the outbox that it leaves, what is received in the shard that has it then."""

    def waits() -> int:
        stats = [master.client.info("commandstats") for master in cluster.masters()]
        return sum(int(one.get("cmdstat_wait", {"calls": 0})["calls"]) for one in stats)

    outboxes = SeedOutboxes(state)
    users = cluster.owner_of("images:start_urls").client
    users.lpush("images:start_urls", b"a seed")
    before = waits()
    assert await outboxes.split([b"a seed"], [1])
    assert waits() == before
    items = await outboxes._scripts.offer(1, count=9)  # of what was split before, too
    assert len(items) == 1
    assert (after := waits()) > before  # once more where the script was not loaded
    taken = await state.shards[1].scripts.receive("users", items, high_water=99, refuse_unknown=False)
    assert taken
    assert waits() > after
    await outboxes.close()


async def test_a_worker_does_not_close_while_anything_is_on_its_way(cluster_url: str, cluster: Cluster) -> None:
    worker = scheduler_for(cluster_url, CRAWL_SHARDS=str(SHARDS))
    assert worker.crawler.spider is not None
    await maybe_deferred_to_future(worker.open(worker.crawler.spider))
    await stop_tasks(worker)
    for shard in worker.state.shards:
        await lead(shard)
        await shard.scripts.heartbeat("w", join=True, timeout=3600, max_deliveries=3)

    async def looks() -> list[bool]:
        return [await worker._is_idle() for _ in range(3)]

    try:
        assert await looks() == [False, True, True]  # a first look has nothing to compare with
        users = cluster.owner_of("images:start_urls").client
        users.lpush("images:start_urls", b"http://s1.example/1.jpg")
        assert await looks() == [False] * 3
        await carry_seeds_out(worker)
        assert users.llen("images:start_urls") == 0
        assert await looks() == [False] * 3  # in an outbox
        await worker_carries(worker)
        assert await looks() == [False] * 3  # in the list of its shard
        redis: Any = worker.state.shard_for("s1.example").redis
        await redis.delete(worker.state.shard_for("s1.example").keys.seeds)
        assert await looks() == [False, True, True]
        await send_request(worker.state, "a")
        assert await looks() == [False] * 3
        for shard in worker.state.shards:
            for number in range(SHARDS):
                await Carrier.of_shard(shard).carry(number)
        for shard in worker.state.shards:
            await redis_of(shard).delete(shard.keys.slots)
            reply = await shard.scripts.lease(*("w", 9), rooms={}, room=9, horizon=9, dead_maxlen=9)
            await shard.scripts.settle("w", [Settlement(one.id, "a", done=True) for one in reply.grants])
        # It came and went between two looks: what was sent and received tells so.
        assert await looks() == [False, True, True]
    finally:
        await maybe_deferred_to_future(worker.close("finished"))
        await worker.state.close()


def redis_of(shard: State) -> Any:
    return shard.redis


async def carry_seeds_out(worker: FrontierScheduler) -> None:
    outboxes = SeedOutboxes(worker.state)
    await SeedRouter(outboxes, SHARDS, lambda line: Request(line.decode())).route()
    await outboxes.close()


async def worker_carries(worker: FrontierScheduler) -> None:
    outboxes = SeedOutboxes(worker.state)
    for number in range(SHARDS):
        await outboxes.carrier.carry(number)
    await outboxes.close()
    await asyncio.sleep(0)
