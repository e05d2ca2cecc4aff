"""`scrapy recount`: the counts of a frontier, put right."""

from __future__ import annotations

import json
from typing import Any

from crawlproject.frontier.dupefilter import digest_of
from crawlproject.state.client import State
from crawlproject.state.scripts import Budget, LinkGroup
from tests.conftest import Scrapy
from tests.leading import lead
from tests.state.scripts.calls import db, entry, join, lease, put, rule
from tests.waiting import until_async

DIGEST = "a" * 40  # of an extent


NOTHING_WRONG = {"packs": 0, "ledger": 0, "orphans": 0, "scheduled": 0}


async def work(state: State) -> None:
    """Have requests in all places where a frontier has some: leased, delayed, queued, beyond a window."""
    await join(state)
    await rule(state, ("museum", 0.1))
    await put(state, [entry(str(number)) for number in range(5)])

    async def leased() -> bool:
        await lead(state)
        return len((await lease(state, 2, horizon=30.0)).grants) > 0

    await until_async(leased)
    await db(state).zadd(state.keys.delayed_of + "museum", {b"1\n" + entry("later"): 9e15})
    await db(state).incr(state.keys.outstanding)
    links = [f"link {number}" for number in range(200)]
    group = LinkGroup(
        "archive.org",
        None,
        [entry(link, priority=1) for link in links],
        [digest_of("", link) for link in links],
        [None] * len(links),
    )
    reply = await state.scripts.discover(
        [group],
        high_water=1_000_000,
        overflow_maxlen=1_000_000,
        refuse_unknown=False,
        budget=Budget(1000, 4, 1_000_000, 100),
    )
    assert reply is not None
    assert set(reply.letters) == {"a"}


async def counted(state: State) -> tuple[int, int]:
    """Return the requests outstanding and waiting, as the scripts have counted them."""
    outstanding, overflow = await db(state).mget(state.keys.outstanding, state.keys.overflow)
    assert int(outstanding) > 100
    assert int(overflow) > 50
    return int(outstanding), int(overflow)


async def stop(state: State) -> None:
    """Let all workers be dead for a long time."""
    for worker in await db(state).zrange(state.keys.workers, 0, -1):
        await db(state).zadd(state.keys.workers, {worker: 1})


async def everything(state: State) -> dict[bytes, Any]:
    keys = [key for key in await db(state).keys("*") if await db(state).pttl(key) == -1]
    return {key: await db(state).dump(key) for key in keys}


def recounted(scrapy: Scrapy) -> dict[str, Any]:
    said = scrapy("recount", "--json")
    assert (said.returncode, said.stderr) == (0, "")
    found: dict[str, Any] = json.loads(said.stdout)
    return found


async def test_where_all_is_right_nothing_is_changed(scrapy: Scrapy, state: State) -> None:
    await work(state)
    await stop(state)
    before = await everything(state)
    outstanding, overflow = await counted(state)
    found = recounted(scrapy)
    assert found.pop("counts") == {
        "outstanding": {"was": outstanding, "is": outstanding},
        "overflow": {"was": overflow, "is": overflow},
        "spilled": {"was": 0, "is": 0},
        "seen": {"was": 205, "is": 205},
    }
    assert found == NOTHING_WRONG
    assert await everything(state) == before


async def test_counts_that_somebody_has_changed_are_put_right(scrapy: Scrapy, state: State) -> None:
    await work(state)
    await stop(state)
    keys, redis = state.keys, db(state)
    outstanding, overflow = await counted(state)
    pack = "0123-ab/1790000000-00ff"
    await redis.rpush(
        keys.extents_of + "0:archive.org", f"{pack}:0:100:{DIGEST}:64", f"{pack}:100:100:{DIGEST}:64", "junk"
    )
    await redis.hset(keys.packs, mapping={pack: 7, "gone-0/1790000000-00ee": 1})
    await redis.set(keys.outstanding, "many")
    await redis.delete(keys.overflow)
    await redis.hset(keys.seen_meta, "exact_count", 3)
    await redis.hset(keys.ledger, "archive.org", "junk")
    await redis.hset(keys.counts_of + "pages", "archive.org", 5)
    found = recounted(scrapy)
    assert found.pop("counts") == {
        "outstanding": {"was": None, "is": outstanding},
        "overflow": {"was": 0, "is": overflow + 128},
        "spilled": {"was": 0, "is": 128},
        "seen": {"was": 3, "is": 205},
    }
    assert found == NOTHING_WRONG | {"packs": 2, "ledger": 1}
    assert await counted(state) == (outstanding, overflow + 128)
    assert await redis.get(keys.spilled) == b"128"
    assert await redis.hgetall(keys.packs) == {pack.encode(): b"2"}
    assert await redis.zrange(keys.packs_dead, 0, -1) == [b"gone-0/1790000000-00ee"]
    assert await redis.hget(keys.ledger, "archive.org") == b"333 128"  # 200 + 128 waiting, 5 fetched
    text = scrapy("recount").stdout
    assert f"outstanding: {outstanding}\n" in text


async def test_sources_that_are_due_nowhere_are_leased_again(scrapy: Scrapy, state: State) -> None:
    await work(state)
    await stop(state)
    keys, redis = state.keys, db(state)
    stood = {key: await redis.zrange(key, 0, -1) for key in keys.due}
    places = await redis.hgetall(keys.places)
    await redis.delete(*keys.due)
    assert recounted(scrapy)["scheduled"] == 2
    assert {key: await redis.zrange(key, 0, -1) for key in keys.due} == stood
    await redis.delete(keys.places)
    recounted(scrapy)
    assert await redis.hgetall(keys.places) == places
    assert recounted(scrapy)["scheduled"] == 0


async def test_leases_of_a_worker_that_nobody_knows_come_back(scrapy: Scrapy, state: State) -> None:
    await work(state)
    outstanding = await db(state).get(state.keys.outstanding)
    await db(state).delete(state.keys.workers)
    assert recounted(scrapy)["orphans"] == 1
    for _ in range(2):  # whoever has just come takes nothing
        await state.scripts.heartbeat("other", join=True, timeout=30, max_deliveries=3)
    assert await db(state).keys(state.keys.leases_of + "*") == []
    assert await db(state).get(state.keys.outstanding) == outstanding


async def test_a_frontier_with_workers_is_left_alone(scrapy: Scrapy, state: State) -> None:
    await work(state)
    await db(state).set(state.keys.outstanding, 99)
    said = scrapy("recount")
    assert said.returncode == 1
    assert said.stderr.startswith("scrapy recount: workers of images are running, or were a moment ago: stop them")
    assert await db(state).get(state.keys.outstanding) == b"99"
