"""The audit: any key that can be derived may be deleted in the middle of a crawl."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from crawlproject.frontier import audit as audit_module
from crawlproject.frontier.audit import Audit
from crawlproject.frontier.codec import with_deliveries
from crawlproject.models import Lease
from crawlproject.state.calls import Revisit
from crawlproject.state.client import State
from tests.frontier.tails import SITE, MemoryStore, counters, discover, spilled
from tests.state.calls.calls import change_packed, db, entry, join, lead, lease, put, request, rule, settle
from tests.state.servers import opened
from tests.waiting import until_async

TIMEOUT_S = 1.0
FOUND = 400
FAST = 100_000


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have sweeps follow each other at once."""
    monkeypatch.setattr(audit_module, "_TICK_S", 0.0)
    monkeypatch.setattr(audit_module, "_EVERY_S", 0.0)


class Crawl:
    """A crawl in whose frontier requests are in all states: those of `ended` are done with."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.overflow = MemoryStore(state)
        self.ended: Counter[bytes] = Counter()
        self.held: list[Lease] = []
        self.fence = 0

    async def begin(self) -> None:
        state, redis, keys = self.state, db(self.state), self.state.keys
        self.fence = await rule(state, ("museum", FAST))
        await join(state)
        await join(state, "dead")
        await put(state, [entry(f"museum {number}") for number in range(30)])
        await self.lease(4, "dead")
        await redis.lpush(keys.seeds, "seed 1", "seed 2")
        assert len(await state.scripts.take_seeds("dead", 9)) == 2
        await self.lease(5)
        delayed, revisited, *self.held = self.held
        self.ended[revisited.entry] += 1
        await settle(state, delayed, entry=delayed.entry, delay=1.0)
        await settle(state, revisited, done=True, revisit=Revisit(b"r" * 20, entry("again"), 3600.0))
        await discover(state, FOUND)
        await state.scripts.set_rates(self.fence, [(SITE, 0.02, 0.02)], {})
        assert await spilled(state, self.overflow) > 100
        assert all(count > 100 for count in (await counters(state))[1:])
        for circuit in ("museum", SITE):
            await change_packed(redis, keys.circuit_of + circuit, state="half_open", generation=1)
            await redis.sadd(keys.watchlist, circuit)

    async def lease(self, want: int, worker: str = "w") -> None:
        """Lease; what this worker gets is `held`, to be settled at some time."""
        reply = await lease(self.state, want, worker)
        self.held += reply.grants if worker == "w" else []

    async def settle(self) -> None:
        """Settle all that is held; each lease is still there."""
        assert all(await settle(self.state, *self.held, done=True))
        self.ended.update(with_deliveries(one.entry, 0) for one in self.held)
        self.held = []

    async def end(self) -> None:
        """Crawl on until nothing is left, as a worker does."""
        state = self.state
        await state.scripts.set_rates(self.fence, [(SITE, FAST, FAST)], {})

        async def is_done() -> bool:
            beat = await state.scripts.heartbeat("w", join=False, timeout=TIMEOUT_S, max_deliveries=3)
            assert beat.alive
            await self.settle()
            await self.overflow.step()
            if seeds := await state.scripts.take_seeds("w", 9):
                items = [request(seed.decode(), int(seed[-1:])) for seed in seeds]
                await state.scripts.enqueue("w", items, seeds=seeds)
            await self.lease(100)
            return not self.held and (await state.scripts.idleness()).is_idle

        await until_async(is_done)


async def sweep(state: State) -> None:
    """Have the audit look at everything."""
    audit = Audit(state, lambda: True)
    await audit.step()
    while audit._frontiers:
        await audit.step()


MENDED = ("due", "counters", "workers", "packs", "revisits", "watchlist")


@pytest.mark.parametrize("name", (None, *MENDED, "active", "window_of"))
async def test_a_derived_key_may_be_deleted(
    redis_url: str, name: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    state = await opened(redis_url, CRAWL_PAGES_BUDGET_MAX=0)
    crawl = Crawl(state)
    await crawl.begin()
    keys, redis = state.keys, db(state)
    caplog.set_level(logging.WARNING)
    before, revisits = await counters(state), await redis.zrange(keys.revisits, 0, -1, withscores=True)
    troubled, needed = await redis.smembers(keys.watchlist), set(await redis.zrange(keys.packs, 0, -1))
    if name == "due":
        await redis.delete(*keys.due)
    elif name == "window_of":
        await redis.delete(keys.window_of + "museum", keys.window_of + SITE)
    elif name is not None:
        await redis.delete(getattr(keys, name))
    await sweep(state)
    assert ("The audit has mended" in caplog.text) == (name in MENDED)
    assert bool(int(await redis.hget(keys.totals, "mended") or 0)) == (name in MENDED)
    assert await counters(state) == before
    assert await redis.zrange(keys.revisits, 0, -1, withscores=True) == revisits
    assert await redis.smembers(keys.watchlist) == troubled
    assert set(await redis.zrange(keys.packs, 0, -1)) == needed
    await crawl.end()
    named = {entry(name) for name in (*(f"museum {number}" for number in range(30)), "seed 1", "seed 2")}
    assert named < crawl.ended.keys()
    assert len(crawl.ended) == len(named) + FOUND
    assert set(crawl.ended.values()) == {1}
    assert await counters(state) == (0, 0, 0)
    await state.close()


@pytest.mark.parametrize("spider", ["images", "pages"])  # of the worker that leads
async def test_a_queue_that_nothing_names_is_crawled(state: State, spider: str) -> None:
    await join(state)
    await lead(state)
    await db(state).rpush(state.keys.queue_of + "2:museum", entry("lost", priority=2))
    await sweep(state.beside(spider))
    [grant] = (await lease(state)).grants
    assert grant.entry[3:] == b"lost"
    assert await counters(state) == (1, 0, 0)


async def test_nothing_is_mended_where_all_is_right(state: State, caplog: pytest.LogCaptureFixture) -> None:
    await join(state)
    await lead(state)
    for number in range(700):
        await put(state, [entry("a"), entry("b", priority=number % 5)], f"s{number}")
    await lease(state, 50)
    kept = {key: await db(state).dump(key) for key in await db(state).keys("*:due:*")}
    await sweep(state)
    assert caplog.text == ""
    assert {key: await db(state).dump(key) for key in await db(state).keys("*:due:*")} == kept


async def test_a_source_that_one_spider_resumes_is_due_for_the_other_one_soon(state: State) -> None:
    """It stood there where its hold would have ended."""
    fence = await rule(state, ("museum", 10))
    pages = state.beside("pages")
    for spider in (state, pages):
        await join(spider)
        await put(spider, [entry("one"), entry("two")])
    (grant,) = (await lease(state, 1)).grants
    await settle(state, grant, done=True, status="429", slows=True, hold=3600.0)
    assert not (await lease(pages)).grants
    await db(state).hset(state.keys.ordered_by_of + "museum", "resume", "somebody")
    assert await state.scripts.watch(fence)
    await sweep(state)

    async def is_leased() -> bool:
        return bool((await lease(pages)).grants)

    await until_async(is_leased)
