"""Reading a page, noting what a later look needs, and storing what it leads to."""

from __future__ import annotations

import asyncio
import gzip
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response

from crawlproject import config
from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.middlewares.one_item import RevisitMiddleware
from crawlproject.models import REVISIT, SOURCE
from crawlproject.pages.items import FetchedPage, ReadPage
from crawlproject.pages.revisits import Look
from crawlproject.pipelines.links import LinksPipeline
from crawlproject.pipelines.page import PagePipeline
from crawlproject.politeness.outcomes import Failure
from crawlproject.spiders.pages import PagesSpider
from tests.pages import reading
from tests.pages.reading import fetched
from tests.state.calls.calls import lead

URL = "https://museum.org/"
ETAG = '"one"'
HOUR = 3600.0


def page(body: bytes, **headers: str) -> FetchedPage:
    return fetched(body, URL, {"Content-Type": "text/html", **headers})


LARGE = b"<p>words</p>" * 10_000


@pytest.mark.parametrize(
    ("packed", "is_large"),
    [
        (page(b"<p>words</p>"), False),
        (page(LARGE), True),
        (page(gzip.compress(LARGE), **{"Content-Encoding": "gzip"}), True),  # once it is decoded
    ],
    ids=["small", "large", "coded"],
)
async def test_a_large_page_is_read_beside_the_event_loop(packed: FetchedPage, is_large: bool) -> None:
    reading = asyncio.create_task(PagePipeline(config.load({})).process_item(packed))
    await asyncio.sleep(0)
    assert reading.done() is not is_large
    item = await reading
    assert item.body.startswith(b"<p>words</p>")


async def test_what_is_not_html_or_cannot_be_decoded_is_a_failure() -> None:
    pipeline = PagePipeline(config.load({}))
    picture = await pipeline.process_item(page(b"\x89PNG\r\n\x1a\n" + bytes(100)))
    broken = await pipeline.process_item(page(b"no gzip", **{"Content-Encoding": "gzip"}))
    assert isinstance(picture, Failure)
    assert isinstance(broken, Failure)
    assert (picture.reason, broken.outcome.kind) == ("not HTML (Content-Type: text/html)", "decode")


async def read(text: str, *, url: str = URL, depth: int = 0, **settings: Any) -> FetchedPage:
    body = f"<html><body>{text}</body></html>".encode()
    item = fetched(body, url, {"ETag": ETAG}, depth=depth)
    item.response.request = Request(url)
    found = await PagePipeline(config.load({"CRAWL_PAGES_REVISIT": "3600", **settings})).process_item(item)
    assert isinstance(found, FetchedPage)
    return found


async def test_seeds_and_home_pages_are_looked_at_again_and_no_others() -> None:
    looks = [
        (await read("a", url=url, depth=depth)).look
        for url, depth in ((URL, 0), (URL, 3), (URL + "a", 0), (URL + "a", 1), (URL + "?a=1", 1))
    ]
    assert [look is not None for look in looks] == [True, True, True, False, False]
    assert (await read("a", CRAWL_PAGES_REVISIT="0")).look is None


@pytest.mark.parametrize(
    ("url", "keeps_pages", "is_asked"),
    [(URL, False, True), (URL + "other", False, False), (URL, True, False)],  # whoever keeps pages has none yet
)
def test_only_the_address_that_named_a_version_is_asked_by_it(url: str, keeps_pages: bool, is_asked: bool) -> None:
    request = Request(url, meta={REVISIT: list(Look(HOUR, "digest", URL, ETAG))})
    crawler: Any = SimpleNamespace(spider=SimpleNamespace(keeps_exchanges=keeps_pages))
    RevisitMiddleware(crawler).process_request(request)
    assert request.headers.get("If-None-Match") == (ETAG.encode() if is_asked else None)


async def test_a_page_that_is_not_modified_is_not_read() -> None:
    spider = PagesSpider()
    before = Look(HOUR, "digest", URL, ETAG, kept_at="2026-11-21T12:00:00.001+00:00", sha1="A" * 32)
    request = Request(URL, headers={"If-None-Match": ETAG}, meta={SOURCE: "museum", REVISIT: list(before)})
    item = spider.parse(Response(URL, 304, request=request))
    assert isinstance(item, FetchedPage)
    found = await PagePipeline(config.load({"CRAWL_PAGES_REVISIT": "3600"})).process_item(item)
    assert found.look == before._replace(interval=2 * HOUR)
    assert found.page is None
    unasked = spider.parse(Response(URL, 304, request=request.replace(headers={})))
    assert unasked.reason == "status 304"


def linked(number: int) -> FetchedPage:
    url = f"https://museum.example/{number}"
    html = f'<p>{number}</p><a href="/{number}/next">next</a><img src="/{number}.jpg">'
    return fetched(html.encode(), url, page=reading.read(html, url=url))


async def test_many_pages_at_the_same_time_leave_connections_to_redis_free(scheduler: FrontierScheduler) -> None:
    await lead(scheduler.state)
    pipeline = LinksPipeline(scheduler.crawler)
    pipeline.open_spider()
    items = await asyncio.gather(*(pipeline.process_item(linked(number)) for number in range(250)))
    assert all(isinstance(item, ReadPage) for item in items)
