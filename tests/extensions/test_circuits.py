"""Circuits as a worker sees them: its samples in Scrapy's stats, and a signal for each change."""

from __future__ import annotations

from typing import Any

import pytest

from crawlproject import controls
from crawlproject.extensions import circuits
from crawlproject.extensions.circuits import Circuits
from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.politeness.outcomes import STORAGE_UNAVAILABLE, UNREADABLE, Failure, of_status
from tests.extensions.test_lease_keeper import Case
from tests.waiting import until_async


@pytest.fixture
def case(scheduler: FrontierScheduler) -> Case:
    return Case(scheduler)


async def test_each_result_of_a_site_is_a_sample_in_the_stats(case: Case) -> None:
    for outcome in (of_status(403), of_status(500), UNREADABLE, STORAGE_UNAVAILABLE):
        case.keeper.item_scraped(Failure(outcome, "x", status=200), await case.lease())
    await case.flush()
    stats = case.scheduler.stats
    assert (stats.get_value("circuits/samples/fine"), stats.get_value("circuits/samples/error")) == (1, 2)


async def test_a_signal_tells_of_each_circuit_that_opens_halts_or_resumes(case: Case) -> None:
    crawler, state = case.scheduler.crawler, case.scheduler.state
    response = await case.lease()
    await controls.halt(state, ["earlier"], "operator")
    fence = await state.scripts.lead("leader", ready=True)
    assert fence is not None
    await state.scripts.watch(fence)  # before the worker has begun to listen
    told: list[tuple[str, str, str, str]] = []

    names = {getattr(circuits, f"circuit_{name}"): name for name in ("opened", "halted", "resumed")}

    def note(signal: object, source: str, reason: str, by: str, **_: Any) -> None:
        told.append((names[signal], source, reason, by))

    async def opened(**more: Any) -> None:
        note(**more)

    for signal, name in names.items():
        crawler.signals.connect(opened if name == "opened" else note, signal=signal)
    extension = Circuits.from_crawler(crawler)
    extension.spider_opened()
    await until_async(lambda: extension._last)
    for number in range(6):
        case.keeper.item_scraped(Failure(of_status(403), "x", status=403), response)
        await case.flush()
        if number < 5:
            response = await case.lease()
    await until_async(lambda: told)
    await controls.halt(state, ["museum"], "a test")
    await state.scripts.watch(fence)
    await controls.resume(state, ["museum"], "a test")
    await state.scripts.watch(fence)
    await until_async(lambda: len(told) > 2)
    await extension.spider_closed()
    worker = f"worker {state.worker_id}"
    assert told == [
        ("opened", "museum", "6 errors of 6 requests in 60 s", worker),
        ("halted", "museum", "an operator halted it", "operator, a test"),
        ("resumed", "museum", "an operator resumed it", "operator, a test"),
    ]
    stats = case.scheduler.stats
    assert [stats.get_value(f"circuits/{name}") for name in ("opened", "halted", "resumed")] == [1, 1, 1]
