"""Sources that are quiet: what Redis keeps of them, and what it must not forget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from crawlproject.config import CircuitRules
from crawlproject.state.client import State
from crawlproject.state.scripts import Settlement
from crawlproject.state.source_counts import read_counts, read_statuses
from crawlproject.status.totals import totals
from tests.state.scripts.calls import change_packed, packed_at
from tests.state.test_circuit_script import MUSEUM, Crawl
from tests.waiting import until_async

COUNTS = {"fetched": 1, "thumbnails": 1, "bytes": 2_000_000_000}
CIRCUIT = f"crawl:circuit:{MUSEUM}"
STATUSES = f"crawl:statuslast50req:{MUSEUM}"
WINDOW = f"crawl:window:{MUSEUM}"


class Quiet(Crawl):
    """A crawl whose sources rest when the test says so."""

    async def count(self, results: str, **more: Any) -> None:
        """Crawl, with counts."""
        await self.crawl(results, counts=COUNTS, latency=0.1, **more)

    async def rest(self) -> int:
        """Let the time come: the window has run out, and everything is quiet."""
        await self.db.delete(WINDOW)
        return await self.scripts.rest(self.fence, quiet=0.0, count=100)


@pytest_asyncio.fixture
async def crawl(state: State) -> Quiet:
    one = Quiet(state, CircuitRules(open=0.05, open_max=0.1))
    await one.start()
    return one


async def test_nothing_but_its_rate_and_its_counts_is_left_of_a_quiet_source(crawl: Quiet) -> None:
    await crawl.count("x.")
    assert await crawl.rest() == 1
    await crawl.watch()
    await crawl.watch()
    left = [key async for key in crawl.db.scan_iter(match=f"*{MUSEUM}*")]
    assert left == [CIRCUIT.encode()]
    assert 0 < await crawl.db.ttl(CIRCUIT) <= 86_400
    assert await crawl.db.exists("crawl:images:active") == 0
    assert await crawl.db.hkeys("crawl:images:counts") == [MUSEUM.encode()]


async def test_its_counts_stay_and_go_on(crawl: Quiet) -> None:
    expected = 0
    for _ in range(3):
        await crawl.count("...")
        expected += 3
        for _ in range(2):
            counts, others = await read_counts(crawl.state, [MUSEUM, "other"])
            assert (counts["fetched"], counts["bytes"], counts["failed"]) == (
                expected,
                expected * 2_000_000_000,
                0,
            )
            assert others == {}
            all_of_it = await totals(crawl.state)
            assert all_of_it["sources"][MUSEUM]["bytes"] == all_of_it["bytes"] == expected * 2_000_000_000
            assert all_of_it["sources"][MUSEUM]["rate_limit"] == 200.0
            await crawl.rest()


async def test_a_source_with_results_lately_does_not_rest(crawl: Quiet) -> None:
    await crawl.count("..")
    assert await crawl.scripts.rest(crawl.fence, quiet=60.0, count=100) == 0
    assert await read_statuses(crawl.state, [MUSEUM]) == [{"200": 2}]


async def test_an_older_leader_puts_nothing_to_rest(crawl: Quiet) -> None:
    await crawl.count("..")
    assert await crawl.scripts.rest(crawl.fence - 1, quiet=0.0, count=100) == 0
    assert await crawl.db.zcard("crawl:images:active") == 1


async def test_no_more_rest_at_once_than_asked_for(crawl: Quiet) -> None:
    for number in range(5):
        await crawl.db.zadd("crawl:images:active", {f"source{number}": number})
    assert [await crawl.scripts.rest(crawl.fence, quiet=0.0, count=2) for _ in range(4)] == [2, 2, 1, 0]


async def test_the_window_is_kept_while_it_lasts(crawl: Quiet) -> None:
    await crawl.count("...x")  # six would open it
    await crawl.scripts.rest(crawl.fence, quiet=0.0, count=100)
    assert await crawl.db.exists(WINDOW, STATUSES) == 2
    await crawl.count("..")
    assert await crawl.circuit_state() == "open"


@pytest.mark.parametrize("halted_by", ["errors", "operator"])
async def test_a_halted_source_stays_halted(crawl: Quiet, halted_by: str) -> None:
    await crawl.count(".")
    if halted_by == "operator":
        await crawl.db.sadd("crawl:halted", MUSEUM)
        await crawl.watch()
    else:
        await _run_of_errors(crawl, 50)
    for _ in range(3):
        await crawl.rest()
        await crawl.watch()
    assert await crawl.circuit_state() == "halted"
    assert await crawl.db.exists(CIRCUIT, STATUSES) == 2
    await crawl.feed(1)
    assert (await crawl.lease()).grants == []


async def test_an_open_circuit_outlives_its_period_and_its_back_off_doubles(state: State) -> None:
    crawl = Quiet(state, CircuitRules(open=30.0, open_max=60.0))
    await crawl.start()
    await crawl.count("x" * 6)
    for _ in range(3):
        await crawl.rest()
        await crawl.watch()
    assert await crawl.circuit_state() == "open"
    await change_packed(crawl.db, CIRCUIT, ends=1)
    await crawl.watch()
    await crawl.rest()
    await crawl.watch()
    assert await crawl.circuit_state() == "half_open"
    await crawl.count("x")
    assert (await packed_at(crawl.db, CIRCUIT))["opens"] == 2


async def _is(crawl: Quiet, state: str) -> bool:
    await crawl.watch()
    return await crawl.circuit_state() == state


async def test_a_source_that_is_held_or_slowed_down_stays_so(crawl: Quiet) -> None:
    await crawl.count("..", slows=True, hold=30.0)
    for _ in range(3):
        await crawl.rest()
        await crawl.watch()
    [status] = await crawl.scripts.inspect([MUSEUM])
    assert status.factor == 0.5
    assert status.held_until > status.now + 20


async def _run_of_errors(crawl: Quiet, count: int) -> None:
    """Have requests fail, each long after the one before."""
    for _ in range(count):
        await crawl.count("x")
        await crawl.rest()
        await crawl.watch()


async def test_a_run_of_errors_is_not_broken_by_quiet_hours(crawl: Quiet) -> None:
    await _run_of_errors(crawl, 49)
    assert await crawl.circuit_state() == "closed"
    assert 80_000 < await crawl.db.ttl(CIRCUIT) <= 86_400
    await crawl.rest()
    await crawl.count("x")
    assert await crawl.circuit_state() == "halted"
    assert await crawl.db.ttl(CIRCUIT) == -1


async def test_a_success_after_quiet_hours_ends_a_run_of_errors(crawl: Quiet) -> None:
    await _run_of_errors(crawl, 3)
    await crawl.count(".")
    await crawl.rest()
    assert await crawl.db.exists(STATUSES) == 0
    assert (await packed_at(crawl.db, CIRCUIT))["run"] == 0


async def test_rest_is_not_taken_for_an_operator_who_deletes_the_statuses(crawl: Quiet) -> None:
    await _run_of_errors(crawl, 2)
    await crawl.rest()
    await crawl.watch()
    await crawl.count("x")
    assert (await packed_at(crawl.db, CIRCUIT))["run"] == 3
    assert await crawl.events("crawl:crawl_resumed") == []


async def test_a_source_whose_probes_nobody_made_for_a_day_is_closed_and_rests(crawl: Quiet) -> None:
    await crawl.count("x" * 6)
    await until_async(lambda: _is(crawl, "half_open"))
    await crawl.rest()
    day_ago = (await packed_at(crawl.db, CIRCUIT))["ends"] - 86_400_000_000
    await change_packed(crawl.db, CIRCUIT, ends=day_ago)
    await crawl.watch()
    [event] = await crawl.events("crawl:crawl_resumed")
    assert (event["source"], event["type"]) == (MUSEUM, "temporary")
    await crawl.watch()
    assert await crawl.db.exists(STATUSES) == 0
    assert 0 < await crawl.db.ttl(CIRCUIT) <= 86_400


async def test_who_pays_for_others_rests_too(crawl: Quiet) -> None:
    """A redirect's target has statuses and a circuit, and no counts."""
    await crawl.feed(1)
    [grant] = (await crawl.lease()).grants
    settlement = Settlement(grant.id, "other", event=("link_rot", "{}"), counts={"fetched": 1})
    await crawl.scripts.settle("w", [replace(settlement, status="500", fine=False)])
    assert await crawl.rest() == 2
    assert await crawl.db.exists(STATUSES) == 0


async def test_redis_out_of_memory_lets_sources_rest(crawl: Quiet) -> None:
    await crawl.count("..")
    await crawl.db.config_set("maxmemory", 1)
    try:
        assert await crawl.rest() == 1
    finally:
        await crawl.db.config_set("maxmemory", 0)
    assert (await read_counts(crawl.state, [MUSEUM]))[0]["fetched"] == 2


async def test_a_thousand_halts_and_resumes_are_all_noticed_a_few_at_a_time(crawl: Quiet) -> None:
    names = [f"source{number}" for number in range(1000)]

    async def watch_until_all_are_in(stream: str) -> None:
        said: list[str] = []
        rounds = 0
        while len(said) < len(names):
            before = len(said)
            await crawl.watch()
            said = [event["source"] for event in await crawl.events(stream)]
            assert len(said) - before <= 40
            rounds += 1
            assert rounds < 1000  # chance chooses: some are late
        assert sorted(said) == sorted(names)

    await crawl.db.sadd("crawl:halted", *names)
    await watch_until_all_are_in("crawl:crawl_halted")
    await crawl.db.delete("crawl:halted")
    await watch_until_all_are_in("crawl:crawl_resumed")
