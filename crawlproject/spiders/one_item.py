"""What the spiders `images` and `pages` have in common: each response becomes one item."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any, Self

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.settings import BaseSettings

from crawlproject import config
from crawlproject.frontier.modes import mode_of, modes
from crawlproject.models import (
    AGAIN,
    EXTRA,
    GONE,
    MODE,
    SOURCE,
    Fetch,
    LinkRotEvent,
    Seed,
    utc_now,
)
from crawlproject.politeness.outcomes import Becomes, Failure, of_status, retry_after_of

# No callback makes a request; and every status reaches the spider, which makes an item for each lease.
_UNUSED = {
    "DOWNLOADER_MIDDLEWARES": (
        "crawlproject.middlewares.adapted.OffsiteMiddleware",
        "scrapy.downloadermiddlewares.httpauth.HttpAuthMiddleware",
    ),
    "SPIDER_MIDDLEWARES": (
        "crawlproject.middlewares.callback_requests.CallbackRequestsMiddleware",
        "scrapy.spidermiddlewares.start.StartSpiderMiddleware",
        "scrapy.spidermiddlewares.httperror.HttpErrorMiddleware",
        "scrapy.spidermiddlewares.urllength.UrlLengthMiddleware",
        "scrapy.spidermiddlewares.depth.DepthMiddleware",
        "scrapy.spidermiddlewares.metacopy.MetaCopyDetectionMiddleware",
    ),
}


class OneItemSpider(Spider):
    """A spider whose every response becomes one item: something to keep, link rot, or a failure.

    Subclasses say which request a seed is, what a response with status 200 becomes, and how an item names it.
    """

    one_item_each = True  # a response without an item is a fault (extensions/lease_keeper.py)
    stored_attributes = frozenset[str]()  # what a stored request may have, beside URL, meta, callback and errback
    stored_headers = frozenset({"Referer"})

    config: config.Config

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        """Return the spider with its settings."""
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.config = config.load(crawler.settings)
        return spider

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Validate the settings, and leave out the middlewares that would have nothing to do."""
        super().update_settings(settings)
        config.load(settings)
        modes()  # all can be loaded
        for name, unused in _UNUSED.items():
            settings.set(name, {**settings.getdict(name), **dict.fromkeys(unused)}, priority="spider")

    async def start(self) -> AsyncIterator[Any]:
        """Yield nothing: the frontier reads the seeds."""
        return
        yield

    def request_for(self, seed: Seed) -> Request:
        """Return the request of a seed."""
        said = {SOURCE: seed.source, AGAIN: seed.again or None, EXTRA: seed.extra} | self.meta_of(seed)
        meta = {name: value for name, value in said.items() if value is not None}
        return Request(seed.url, meta=meta, priority=seed.priority or 0)

    @abstractmethod
    def meta_of(self, seed: Seed) -> dict[str, Any]:
        """Return what else is stored with the request of a seed, None for what it does not say."""

    @abstractmethod
    def who(self, request: Request) -> dict[str, Any]:
        """Return the fields that an event about `request` begins with: identifier, url, source."""

    @abstractmethod
    def fetched(self, response: Response, request: Request) -> Any:
        """Return the item of a response with what was asked for: as a rule with status 200."""

    def parse(self, response: Response) -> Any:
        """Return the item of a response."""
        request = response.request
        assert request is not None
        status, wait, gone = response.status, retry_after_of(response), request.meta.get(GONE, ())
        mode = mode_of(request)
        outcome = of_status(status, wait, gone) if mode is None else mode.outcome(response, request, gone)
        if outcome.becomes is Becomes.LINK_ROT:
            how = asdict(Fetch.of(request, response.url))
            how |= {
                "spider": self.name,
                "extra": request.meta.get(EXTRA),
                "mode": request.meta.get(MODE, [None])[0],
            }
            return LinkRotEvent(**self.who(request), status=status, time=utc_now(), **how)
        if outcome.becomes is not Becomes.IMAGE:
            return Failure(outcome, f"status {status}", status, wait)
        return self.fetched(response, request)
