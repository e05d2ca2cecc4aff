"""From the engine to the handler: middlewares, and signals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydispatch import dispatcher
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.utils.request import request_httprepr
from scrapy.utils.test import get_crawler

from crawlproject.extensions.signal_manager import Signals
from crawlproject.middlewares.adapted import StatsMiddleware
from crawlproject.net.downloader import Downloader

URL = "http://museum.example/a.jpg"


class Handler:
    lazy = False

    async def download_request(self, request: Request) -> Response:
        if request.method == "HEAD":
            raise OSError("refused")
        return Response(request.url, status=200)

    async def close(self) -> None: ...


class Plain:
    """A middleware of a user's."""

    def process_request(self, request: Request) -> Any:
        return request.meta.get("instead")

    def process_response(self, request: Request, response: Response) -> Any:
        return response.replace(status=response.status + 1)


class Slow(Plain):
    async def process_request(self, request: Request) -> Any:
        await asyncio.sleep(0)
        return request.meta.get("late")

    async def process_response(self, request: Request, response: Response) -> Any:
        return request.meta.get("other", response.replace(status=response.status + 2))

    async def process_exception(self, request: Request, exception: Exception) -> Any:
        return Response(request.url, status=500) if isinstance(exception, OSError) else None


@pytest.fixture
def crawler() -> Crawler:
    settings = {"DOWNLOAD_HANDLERS": {"http": Handler}, "DOWNLOADER_MIDDLEWARES": {Plain: 1, Slow: 2}}
    made = get_crawler(Spider, {**settings, "DOWNLOADER_MIDDLEWARES_BASE": {}})
    made.spider = Spider("own")
    return made


async def fetched(crawler: Crawler, request: Request) -> Any:
    downloader = Downloader(crawler)
    result = downloader.fetch(request)
    assert downloader.active == {request}
    try:
        return await result.asFuture(asyncio.get_running_loop())
    finally:
        assert not downloader.active


async def test_middlewares_may_wait_or_not_and_answer_in_place_of_the_site(crawler: Crawler) -> None:
    other = Request(f"{URL}?again")
    assert (await fetched(crawler, Request(URL))).status == 203
    assert await fetched(crawler, Request(URL, meta={"instead": other})) is other
    assert await fetched(crawler, Request(URL, meta={"late": other})) is other
    assert await fetched(crawler, Request(URL, meta={"other": other})) is other
    assert (await fetched(crawler, Request(URL, method="HEAD"))).status == 503  # what the exception became
    for wrong in ("instead", "late", "other"):
        with pytest.raises(TypeError, match="must return"):
            await fetched(crawler, Request(URL, meta={wrong: "a text"}))


async def test_the_spider_is_never_idle_before_the_engine_has_the_response(crawler: Crawler) -> None:
    downloader, request = Downloader(crawler), Request(URL)
    result = downloader.fetch(request)
    while not result.called:
        assert downloader.active == {request}
        await asyncio.sleep(0)
    assert not downloader.active


async def test_the_downloaders_signals_are_sent(crawler: Crawler) -> None:
    told: list[Any] = []
    names = ("request_reached_downloader", "response_downloaded", "request_left_downloader")
    receivers = [lambda request, spider, name=name: told.append((name, spider)) for name in names]
    for name, receiver in zip(names, receivers, strict=True):
        crawler.signals.connect(receiver, getattr(signals, name))
    await fetched(crawler, Request(URL))
    assert told == [(name, crawler.spider) for name in names]


def test_a_signal_reaches_all_who_listen() -> None:
    crawler, heard = get_crawler(), []
    crawler.signals.connect(first := lambda: heard.append(1), "a signal")
    found = Signals.from_crawler(crawler)
    assert crawler.signals is found
    found.send_catch_log("a signal")
    dispatcher.connect(second := lambda: heard.append(2), "another signal")  # of any sender
    found.send_catch_log("another signal")
    found.disconnect(first, "a signal")
    dispatcher.disconnect(second, "another signal")
    assert found.send_catch_log("a signal") == []
    assert heard == [1, 2]


def test_the_bytes_of_requests_are_counted_as_by_scrapy(crawler: Crawler) -> None:
    for request in (
        Request(URL, headers={"A": "b", "C": ["d", "ef"]}),
        Request(f"{URL}?x=y", method="POST", body="abc"),
    ):
        crawler.stats.set_value("downloader/request_bytes", 0)
        StatsMiddleware(crawler.stats).process_request(request)
        counted = crawler.stats.get_value("downloader/request_bytes")
        assert abs(counted - len(request_httprepr(request))) <= 4
