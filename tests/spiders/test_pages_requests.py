"""Seeds and requests of the spider `pages`, and what its items are."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from crawlproject.frontier import codec
from crawlproject.frontier.discovery import Discovery, Link
from crawlproject.frontier.seeds import parse_seed
from crawlproject.models import AGAIN, MOST_DEPTH, SCOPE, SITEMAP, SOURCE, VIA, LinkRotEvent
from crawlproject.pages.items import FetchedPage, FetchedSitemap, ReadPage
from crawlproject.politeness.outcomes import Failure
from crawlproject.spiders.pages import PagesSpider

URL = "https://museum.org/a"


@pytest.fixture
def spider() -> PagesSpider:
    return PagesSpider.from_crawler(get_crawler(PagesSpider))


@pytest.mark.parametrize(
    ("line", "url", "priority", "meta"),
    [
        (URL, URL, 3, {}),
        ("https://Museum.ORG", "https://museum.org/", 3, {}),
        ("https://museum.org/a?utm_source=x&b=1#part", "https://museum.org/a?b=1", 3, {}),
        ('{"url": "https://museum.org/a", "priority": 0}', URL, 0, {}),
        (f'{{"url": "{URL}", "depth": 0, "source": "Museum"}}', URL, 3, {MOST_DEPTH: 0, SOURCE: "museum"}),
        ('{"url": "https://museum.org/a", "again": true}', URL, 3, {AGAIN: True}),
        (f'{{"url": "{URL}", "scope": "host"}}', URL, 3, {SCOPE: "host:museum.org"}),
    ],
)  # fmt: skip
def test_the_request_of_a_seed(
    spider: PagesSpider, line: str, url: str, priority: int, meta: dict[str, Any]
) -> None:
    request = spider.request_for(parse_seed(line))
    meta = meta | {VIA: request.meta[VIA]}  # the time
    assert (request.url, request.priority, request.meta) == (url, priority, meta)
    stored = codec.decode(codec.encode(request, spider), spider)
    assert (stored.url, stored.priority, stored.meta) == (url, priority, meta)


def test_every_response_is_one_item(spider: PagesSpider) -> None:
    def item(status: int, **meta: Any) -> Any:
        request = Request(URL, meta={SOURCE: "museum", **meta})
        return spider.parse(Response(URL, status=status, request=request))

    page = item(200, depth=4, redirect_urls=["https://museum.org/first"], **{SCOPE: "x.org/*", MOST_DEPTH: 9})
    assert isinstance(page, FetchedPage)
    assert (page.url, page.fetch.final_url, page.fetch.redirects) == ("https://museum.org/first", URL, 1)
    assert (page.source, page.depth, page.scope, page.most_depth) == ("museum", 4, "x.org/*", 9)
    gone, failed = item(404), item(503)
    assert isinstance(gone, LinkRotEvent)
    assert (gone.identifier, gone.url) == ("1ed3d01f-9513-58b4-a151-5ef72ea0b562", URL)
    assert isinstance(failed, Failure)
    assert failed.reason == "status 503"


def test_a_sitemap_comes_back_with_what_it_may_lead_to(spider: PagesSpider) -> None:
    links = Discovery(None, spider.config)  # type: ignore[arg-type]
    meta = {SCOPE: "host:museum.org", SITEMAP: 1}
    request = codec.decode(links.stored(Link(URL, 2, 1, source="museum", meta=meta)), spider)
    item = spider.parse(Response(URL, request=request))
    assert isinstance(item, FetchedSitemap)
    assert (item.url, item.depth, item.indexes) == (URL, 1, 1)
    assert (item.scope, item.most_depth) == ("host:museum.org", None)
    assert spider.parse(Response(URL, status=404, request=request)) == ReadPage(None, 404)
