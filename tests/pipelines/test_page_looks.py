"""What is noted of a page so that it can be looked at again, from its response to its next request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import HtmlResponse, Response

from crawlproject import config
from crawlproject.middlewares.one_item import RevisitMiddleware
from crawlproject.models import REVISIT, SOURCE, Fetch
from crawlproject.pages.items import FetchedPage
from crawlproject.pages.revisits import Look
from crawlproject.pipelines.page import PagePipeline
from crawlproject.spiders.pages import PagesSpider

URL = "https://museum.org/"
ETAG = '"one"'
HOUR = 3600.0


async def read(text: str, *, url: str = URL, depth: int = 0, **settings: Any) -> FetchedPage:
    response = HtmlResponse(url, body=f"<html><body>{text}</body></html>".encode(), headers={"ETag": ETAG})
    response.request = Request(url)
    item = FetchedPage(
        url=url,
        source="museum",
        depth=depth,
        fetched_at="2026-11-22T12:00:00.001+00:00",
        fetch=Fetch(final_url=url, redirects=0, attempts=1, fetch_s=0.1),
        response=response,
    )
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
