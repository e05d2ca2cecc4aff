"""The spider that crawls HTML pages, link by link."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from scrapy import Request
from scrapy.http import Response
from scrapy.settings import BaseSettings

from crawlproject import plugins
from crawlproject.frontier.codec import found_by, seed_url, via
from crawlproject.models import (
    EXTRA,
    MOST_DEPTH,
    REVISIT,
    SCOPE,
    SITEMAP,
    SOURCE,
    VIA,
    Fetch,
    LinkRotEvent,
    Seed,
    utc_now,
)
from crawlproject.pages import sitemaps
from crawlproject.pages.canonical import canonical_url
from crawlproject.pages.items import FetchedPage, FetchedSitemap, ReadPage
from crawlproject.pages.page import MAX_BYTES
from crawlproject.pages.revisits import Look
from crawlproject.politeness.versions import CONDITIONS
from crawlproject.spiders.images import OneItemSpider, declared_type
from crawlproject.texts import without_userinfo

_PIPELINES = {
    "crawlproject.pipelines.page.PagePipeline": 100,
    "crawlproject.pipelines.links.LinksPipeline": 300,
}
_MIDDLEWARES = {"crawlproject.middlewares.one_item.RevisitMiddleware": 510}
_SEED_PRIORITY = 3  # above what sitemaps (2) and pages (1, 0) lead to, below what an operator sends (4)


class PagesSpider(OneItemSpider):
    """Crawls from the URLs that `pages:start_urls` names to whatever they link to, within their scope.

    Every response becomes exactly one item: a page or a sitemap to read, link rot, or a
    failure.
    """

    name = "pages"
    stored_meta = frozenset({SCOPE, MOST_DEPTH, SITEMAP, REVISIT})
    finds_for = ("images",)  # spiders whose frontiers get what this one finds
    bare_scheme = "https"  # of a domain in a file of seeds (commands/feed.py)

    keeps_exchanges = False  # set by a plug-in that keeps pages: it wants the heads of requests and responses

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Have items go through the pipelines of pages."""
        super().update_settings(settings)
        others = plugins.scrapys_settings().get("ITEM_PIPELINES", {})
        settings.set("ITEM_PIPELINES", {**others, **_PIPELINES}, priority="spider")
        middlewares = settings.getdict("DOWNLOADER_MIDDLEWARES")
        settings.set("DOWNLOADER_MIDDLEWARES", {**middlewares, **_MIDDLEWARES}, priority="spider")

    def wanted_bytes(self, request: Request) -> int:
        """Return how many bytes of a body are read; the rest is not downloaded (net/handler.py)."""
        return sitemaps.MAX_BYTES if SITEMAP in request.meta else MAX_BYTES

    def request_for(self, seed: Seed) -> Request:
        """Return the request of a seed, with its canonical URL."""
        priority = _SEED_PRIORITY if seed.priority is None else seed.priority
        return super().request_for(replace(seed, url=canonical_url(seed.url) or seed.url, priority=priority))

    def meta_of(self, seed: Seed) -> dict[str, Any]:
        """Return how far links are followed, and when the seed was admitted."""
        return {SCOPE: seed.scope, MOST_DEPTH: seed.depth, VIA: via(seed.url)}

    def who(self, request: Request) -> dict[str, Any]:
        """Return the fields that link rot begins with: which page `request` is for."""
        url = without_userinfo(seed_url(request))
        identifier = str(uuid.uuid5(uuid.NAMESPACE_URL, url))
        return {"identifier": identifier, "url": url, "source": request.meta[SOURCE]}

    def parse(self, response: Response) -> Any:
        """Return the item of a response; that a sitemap is gone, or a page has not changed, is no failure."""
        assert response.request is not None
        if response.status == 304 and any(name in response.request.headers for name in CONDITIONS):
            return self.fetched(response, response.request)
        item = super().parse(response)
        is_gone = isinstance(item, LinkRotEvent) and SITEMAP in response.request.meta
        return ReadPage(None, response.status) if is_gone else item

    def fetched(self, response: Response, request: Request) -> FetchedPage | FetchedSitemap:
        """Return the item of a page or sitemap to read."""
        meta = request.meta
        known: dict[str, Any] = {
            "url": without_userinfo(seed_url(request)),
            "source": meta[SOURCE],
            "depth": meta.get("depth", 0),
            "scope": meta.get(SCOPE),
            "most_depth": meta.get(MOST_DEPTH),
            "response": response,
            "before": Look(*meta[REVISIT]) if REVISIT in meta else None,
        }
        if SITEMAP in meta:
            return FetchedSitemap(**known, indexes=meta[SITEMAP])
        return FetchedPage(
            **known,
            fetched_at=utc_now(),
            fetch=Fetch.of(request, response.url),
            content_type=declared_type(response),
            statuses=(*meta.get("redirect_reasons", ()), response.status),
            found=found_by(request),
            extra=meta.get(EXTRA),
        )
