"""The gate, against a real Redis."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from crawlproject import __version__
from crawlproject.errors import SlotMissed, SlotMissedHere, StaleConnection
from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.frontier.shares import MOST_A_CALL
from crawlproject.middlewares.adapted import CompressionMiddleware, UserAgentMiddleware
from crawlproject.middlewares.callback_requests import CallbackRequestsMiddleware
from crawlproject.middlewares.gate import TokenMiddleware
from crawlproject.models import IDENTIFIER, LEASE, PACED_AS, RETRIES, SLOT, SOURCE, Lease
from crawlproject.spiders.pages import PagesSpider
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


URL = "https://museum.org/a"
BODY = gzip.compress(b"Disallow:", mtime=0)


def received(body: bytes = BODY, coding: str = "gzip", meta: dict[str, str | None] | None = None) -> Response:
    middleware = CompressionMiddleware.from_crawler(get_crawler(settings_dict={"DOWNLOAD_MAXSIZE": 1000}))
    response = Response(URL, headers={"Content-Encoding": coding}, body=body)
    made = middleware.process_response(Request(URL, meta=meta), response)
    assert isinstance(made, Response)
    return made


@pytest.mark.parametrize("meta", [{IDENTIFIER: "6f1c"}, {SLOT: None}], ids=["a picture", "a robots.txt"])
def test_what_comes_from_strangers_is_passed_on_as_it_came(meta: dict[str, str | None]) -> None:
    made = received(meta=meta)
    assert (made.body, made.headers["Content-Encoding"]) == (BODY, b"gzip")


def test_a_page_is_passed_on_as_it_came_but_not_in_the_shell() -> None:
    middleware = CompressionMiddleware.from_crawler(get_crawler(PagesSpider))
    response = Response(URL, headers={"Content-Encoding": "gzip"}, body=BODY)
    leased = middleware.process_response(Request(URL, meta={LEASE: object()}), response)
    assert isinstance(leased, Response)
    assert leased.body == BODY
    shown = middleware.process_response(Request(URL), response)
    assert isinstance(shown, Response)
    assert shown.body == b"Disallow:"


def test_everything_else_is_decoded() -> None:
    made = received()
    assert (made.body, "Content-Encoding" in made.headers) == (b"Disallow:", False)
    made = received(zlib.compress(BODY), "own, gzip, deflate")
    assert (made.body, made.headers["Content-Encoding"]) == (b"Disallow:", b"own")


@pytest.mark.parametrize(
    ("body", "coding", "why"),
    [
        (gzip.compress(bytes(1001), mtime=0), "gzip", "larger than DOWNLOAD_MAXSIZE"),
        (BODY, "gzip, gzip, gzip", "3 nested content codings"),
        (b"no such coding", "gzip", "content coding gzip"),
    ],
)
def test_what_cannot_be_decoded_within_bounds_is_dropped(body: bytes, coding: str, why: str) -> None:
    with pytest.raises(IgnoreRequest, match=why):
        received(body, coding)


def test_the_user_agent_says_who_we_are_whatever_the_spider_says() -> None:
    crawler = get_crawler(settings_dict={"CRAWL_CONTACT": "mailto:bot@example.org", "USER_AGENT": "Mozilla/5.0"})
    request = Request("https://museum.org/", headers={"User-Agent": "Mozilla/5.0"})
    UserAgentMiddleware.from_crawler(crawler).process_request(request)
    said = f"crawlproject/{__version__} (+mailto:bot@example.org)"
    assert request.headers["User-Agent"] == said.encode()


MUSEUM, ELSEWHERE = "https://www.museum.org/a", "https://elsewhere.net/a"


async def found(scheduler: FrontierScheduler, url: str, came_from: list[str], link: str) -> Request:
    """Return the request for `link` that a callback has yielded with all of its response's meta."""
    meta: dict[str, Any] = {
        SOURCE: "photos",
        PACED_AS: "photos",
        RETRIES: 1,
    }
    if came_from:
        meta["redirect_urls"] = came_from
    meta[LEASE] = Lease("1.0:photos", 0.0, 0.0, 0, b"")
    response = Response(url, request=Request(url, meta=meta))

    async def callback() -> AsyncIterator[Any]:
        yield Request(link, meta=response.meta)
        yield {"an": "item"}

    middleware = CallbackRequestsMiddleware.from_crawler(scheduler.crawler)
    request, item = [one async for one in middleware.process_spider_output_async(response, callback())]
    assert item == {"an": "item"}
    assert isinstance(request, Request)
    return request


@pytest.mark.parametrize(
    ("url", "came_from", "link", "source"),
    [
        (MUSEUM, [], "https://images.museum.org/b", "photos"),
        (MUSEUM, ["https://museum.org/"], "https://images.museum.org/b", "photos"),
        (MUSEUM, [], ELSEWHERE, None),
        (ELSEWHERE, [MUSEUM], "https://elsewhere.net/b", None),  # paid for itself, and its links do
    ],
)
async def test_a_link_is_of_its_pages_source_within_the_domain_of_the_seed(
    scheduler: FrontierScheduler, url: str, came_from: list[str], link: str, source: str | None
) -> None:
    request = await found(scheduler, url, came_from, link)
    assert request.meta == ({} if source is None else {SOURCE: source})
