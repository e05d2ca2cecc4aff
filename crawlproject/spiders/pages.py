"""The spider that crawls HTML pages, link by link."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.settings import BaseSettings

from crawlproject import config
from crawlproject.frontier.codec import seed_url
from crawlproject.models import AGAIN, MOST_DEPTH, SCOPE, SOURCE, FetchedPage, Seed, utc_now
from crawlproject.pages.canonical import canonical_url
from crawlproject.spiders.one_item import OneItemSpider, fetch_of
from crawlproject.texts import without_userinfo

_PIPELINES = {
    "crawlproject.pipelines.page.PagePipeline": 100,
    "crawlproject.pipelines.page_store.PageStorePipeline": 200,
    "crawlproject.pipelines.found.FoundPipeline": 300,
}
_SEED_PRIORITY = 3  # above what sitemaps (2) and pages (1, 0) lead to, below what an operator sends (4)


class PagesSpider(OneItemSpider):
    """Crawls from the URLs that `pages:start_urls` names to whatever they link to, within their scope.

    Every response and every failure becomes exactly one item: a page to read, link rot, or a failure.
    """

    name = "pages"
    stored_meta = frozenset({SCOPE, MOST_DEPTH})
    bare_scheme = "https"  # of a domain in a file of seeds (commands/feed.py)

    config: config.Config
    wanted_bytes = 0  # of a body; the rest is not downloaded (net/handler.py)
    keeps_exchanges = False  # the heads of requests and responses are wanted, for the content store

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        """Return the spider with its settings."""
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.config = config.load(crawler.settings)
        spider.wanted_bytes = spider.config.pages_max_bytes
        spider.keeps_exchanges = spider.config.pages_store is not None
        return spider

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Have items go through the pipelines of pages."""
        super().update_settings(settings)
        settings.set("ITEM_PIPELINES", _PIPELINES, priority="spider")

    def request_for(self, seed: Seed) -> Request:
        """Return the request of a seed."""
        meta: dict[str, Any] = {}
        if seed.source is not None:
            meta[SOURCE] = seed.source
        if seed.again:
            meta[AGAIN] = True
        if seed.scope is not None:
            meta[SCOPE] = seed.scope
        if seed.depth is not None:
            meta[MOST_DEPTH] = seed.depth
        priority = _SEED_PRIORITY if seed.priority is None else seed.priority
        return Request(canonical_url(seed.url) or seed.url, errback=self.failed, meta=meta, priority=priority)

    def who(self, request: Request) -> dict[str, Any]:
        """Return the fields that link rot and failures begin with: which page `request` is for."""
        url = without_userinfo(seed_url(request))
        identifier = str(uuid.uuid5(uuid.NAMESPACE_URL, url))
        return {"identifier": identifier, "url": url, "source": request.meta[SOURCE]}

    def fetched(self, response: Response, request: Request) -> FetchedPage:
        """Return the item of a page to read."""
        meta = request.meta
        return FetchedPage(
            url=without_userinfo(seed_url(request)),
            source=meta[SOURCE],
            depth=meta.get("depth", 0),
            scope=_text_in(meta, SCOPE),
            most_depth=_number_in(meta, MOST_DEPTH),
            fetched_at=utc_now(),
            fetch=fetch_of(response, request),
            response=response,
        )


# What a spider declares in `stored_meta` is not checked when it is read back, and others can write to Redis.


def _text_in(meta: Mapping[str, Any], name: str) -> str | None:
    value = meta.get(name)
    return value if isinstance(value, str) else None


def _number_in(meta: Mapping[str, Any], name: str) -> int | None:
    value = meta.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
