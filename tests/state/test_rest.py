"""Sources that are quiet: what Redis keeps of them, and what it must not forget."""

from __future__ import annotations

import pytest
import pytest_asyncio

from crawlproject.config import CircuitRules
from crawlproject.state.client import State
from tests.state.calls.calls import change_packed, packed_at
from tests.state.test_circuit_script import CIRCUIT, MUSEUM, Crawl

STATUSES = f"crawl:statuslast50req:{MUSEUM}"
WINDOW = f"crawl:window:{MUSEUM}"
COUNTS = {"fetched": 1, "thumbnails": 1, "bytes": 2_000_000_000}
LASTS = 90 * 86_400


class Quiet(Crawl):
    """A crawl whose sources rest when the test says so."""

    async def rest(self) -> None:
        """Let the time come at which a source is quiet: what would have expired after some hours has."""
        for key in (WINDOW, STATUSES):
            if 0 < await self.db.ttl(key) <= 3600:
                await self.db.delete(key)
        await self.db.zadd("crawl:images:active", {MUSEUM: 1}, xx=True)
        await self.scripts.trim(self.fence, maxlen=9999)
        await self.watch()


@pytest_asyncio.fixture
async def crawl(state: State) -> Quiet:
    one = Quiet(state, CircuitRules(open=0.05, open_max=0.1))
    await one.start()
    return one


async def test_nothing_but_its_rate_and_its_counts_is_left_of_a_quiet_source(crawl: Quiet) -> None:
    await crawl.crawl("x.", counts=COUNTS)
    await crawl.rest()
    left = [key async for key in crawl.db.scan_iter(match=f"*{MUSEUM}*")]
    assert left == [CIRCUIT.encode()]
    assert 0 < await crawl.db.ttl(CIRCUIT) <= 86_400
    assert await crawl.db.exists("crawl:images:active") == 0
    assert await crawl.db.hkeys("crawl:images:counts") == [MUSEUM.encode()]


@pytest.mark.parametrize("halted_by", ["errors", "operator"])
async def test_a_halted_source_stays_halted(crawl: Quiet, halted_by: str) -> None:
    await crawl.crawl(".")
    if halted_by == "operator":
        await crawl.db.sadd("crawl:halted", MUSEUM)
        await crawl.watch()
    else:
        for number in range(50):  # each long after the one before: quiet hours do not break the run
            assert await crawl.circuit_state() == "closed", number
            await crawl.crawl("x")
            await crawl.rest()
    for _ in range(3):
        await crawl.rest()
    assert await crawl.circuit_state() == "halted"
    assert await crawl.db.ttl(CIRCUIT) == -1
    assert LASTS - 60 < await crawl.db.ttl(STATUSES) <= LASTS
    await crawl.feed(1)
    assert (await crawl.lease()).grants == []
    await crawl.db.srem("crawl:halted", MUSEUM)
    await crawl.watch()
    assert 0 < await crawl.db.ttl(CIRCUIT) <= 86_400
    assert 0 < await crawl.db.ttl(STATUSES) <= 3600


async def test_an_open_circuit_outlives_its_period_and_its_back_off_doubles(state: State) -> None:
    crawl = Quiet(state, CircuitRules(open=30.0, open_max=60.0))
    await crawl.start()
    await crawl.crawl("x" * 6)
    for _ in range(3):
        await crawl.rest()
    assert await crawl.circuit_state() == "open"
    await change_packed(crawl.db, CIRCUIT, ends=1)
    await crawl.watch()
    await crawl.rest()
    assert await crawl.circuit_state() == "half_open"
    await crawl.crawl("x")
    assert (await packed_at(crawl.db, CIRCUIT))["opens"] == 2


async def test_a_source_that_is_held_or_slowed_down_stays_so(crawl: Quiet) -> None:
    await crawl.crawl("..", slows=True, hold=30.0)
    for _ in range(3):
        await crawl.rest()
    [status] = await crawl.scripts.inspect([MUSEUM])
    assert status.factor == 0.5
    assert status.held_until > status.now + 20


async def test_sources_of_every_spider_rest(crawl: Quiet) -> None:
    await crawl.db.zadd("crawl:spiders", {"pages": 1})
    for spider in ("images", "pages"):
        await crawl.db.zadd(f"crawl:{spider}:active", {MUSEUM: 1})
        await crawl.db.hset(f"crawl:{spider}:dead_sources", MUSEUM, 1)
    await crawl.scripts.trim(crawl.fence, maxlen=9999)
    assert await crawl.db.keys("crawl:*:active") == await crawl.db.keys("crawl:*:dead_sources") == []
