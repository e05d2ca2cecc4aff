"""The gate, against a real Redis."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from scrapy import Request
from scrapy.exceptions import IgnoreRequest

from crawlproject.errors import SlotMissed, SlotMissedHere, StaleConnection
from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.frontier.shares import MOST_A_CALL
from crawlproject.middlewares.gate import TokenMiddleware
from crawlproject.models import LEASE, SOURCE, Lease
from tests.state.calls.calls import rule

TOLERANCE = 0.06


def leased(late: float) -> Request:
    """Return a request whose slot was `late` seconds ago."""
    slot = asyncio.get_running_loop().time() - late
    lease = Lease("1:museum", slot, slot + TOLERANCE, 0, b"")
    return Request("http://museum.example/a.jpg", meta={LEASE: lease, SOURCE: "museum"})


async def test_a_slot_passes_once(scheduler: FrontierScheduler) -> None:
    gate = TokenMiddleware.from_crawler(scheduler.crawler)
    request = leased(0.01)
    assert await gate.process_request(request) is None
    assert await gate.process_request(request) is request
    assert await gate.process_request(request.replace(url="http://museum.example/b.jpg")) is not None


async def test_a_missed_slot_does_not_pass(scheduler: FrontierScheduler) -> None:
    gate = TokenMiddleware.from_crawler(scheduler.crawler)
    request = leased(TOLERANCE + 0.01)
    assert await gate.process_request(request) is request
    assert scheduler.stats.get_value("tokens/returned") == 1


async def test_only_what_this_worker_was_late_with_slows_its_leasing(scheduler: FrontierScheduler) -> None:
    gate, pace = TokenMiddleware.from_crawler(scheduler.crawler), scheduler.queue.pace
    stopped = leased(TOLERANCE + 0.01)
    stopped.meta[LEASE].revoked = True
    passed = leased(0.0)
    assert await gate.process_request(stopped) is stopped
    assert await gate.process_request(passed) is None
    assert gate.process_exception(passed, StaleConnection("closed")) is passed
    assert gate.process_exception(passed, SlotMissed("while the connection was made")) is passed
    assert pace.next() == MOST_A_CALL
    assert gate.process_exception(passed, SlotMissedHere("on the way from the gate")) is passed
    assert pace.next() == MOST_A_CALL // 2
    await gate.process_request(leased(TOLERANCE + 0.01))
    assert pace.next() == MOST_A_CALL // 4


async def test_a_request_without_a_lease_waits_for_a_slot_of_its_source(scheduler: FrontierScheduler) -> None:
    fence = await rule(scheduler.state, ("museum", 10))
    await scheduler.state.scripts.set_rates(fence, [], {"museum.example": "museum"})
    gate = TokenMiddleware.from_crawler(scheduler.crawler)
    loop = asyncio.get_running_loop()
    started = loop.time()

    async def passed(url: str) -> float:
        assert await gate.process_request(Request(url)) is None
        return loop.time() - started

    times = sorted(
        await asyncio.gather(
            *(passed(f"http://{host}museum.example/robots.txt") for host in ("", "www.", "images.", "m."))
        )
    )
    assert all(time > 0.1 * place - 0.02 for place, time in enumerate(times)), times


async def test_without_a_pulse_it_waits_and_gives_up_when_the_crawl_closes(scheduler: FrontierScheduler) -> None:
    gate = TokenMiddleware.from_crawler(scheduler.crawler)
    waiting = asyncio.create_task(gate.process_request(Request("http://museum.example/robots.txt")))
    await asyncio.sleep(0.7)
    assert not waiting.done()
    slot: Any = scheduler.crawler.engine._slot
    slot.closing = True
    with pytest.raises(IgnoreRequest, match="closes"):
        await waiting
    slot.closing = None
