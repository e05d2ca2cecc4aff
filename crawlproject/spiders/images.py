"""The spider that fetches images, and what `pages` has in common with it: each response becomes one item."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, Self

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.settings import BaseSettings

from crawlproject import config
from crawlproject.frontier.codec import seed_url
from crawlproject.frontier.modes import mode_of, modes
from crawlproject.imaging.codings import content_codings
from crawlproject.models import (
    AGAIN,
    EXTRA,
    FOUND,
    GONE,
    IDENTIFIER,
    MODE,
    OPT_OUT,
    OPT_OUTS,
    SOURCE,
    TLS_FAILURE,
    Fetch,
    FetchedImage,
    LinkRotEvent,
    Seed,
    utc_now,
)
from crawlproject.pages.rules import header
from crawlproject.politeness.outcomes import KEPT_BACK, Becomes, Failure, of_status, retry_after_of
from crawlproject.politeness.robots_txt import opt_outs
from crawlproject.politeness.versions import Version
from crawlproject.texts import printable, without_userinfo

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
_MIDDLEWARES = {"crawlproject.middlewares.one_item.GoneMiddleware": 520}


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
        settings.set("WARN_ON_GENERATOR_RETURN_VALUE", False, priority="spider")  # `parse` is none
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
            how = Fetch.of(request, response.url)._asdict()
            how |= {
                "spider": self.name,
                "extra": request.meta.get(EXTRA),
                "mode": request.meta.get(MODE, [None])[0],
            }
            return LinkRotEvent(**self.who(request), status=status, time=utc_now(), **how)
        if outcome.becomes is not Becomes.IMAGE:
            return Failure(outcome, f"status {status}", status, wait)
        return self.fetched(response, request)


class ImagesSpider(OneItemSpider):
    """Fetches the pictures that `images:start_urls` names, whole or in a mode (frontier/modes.py).

    Every response becomes exactly one item: a picture to analyse, the item of a mode, link rot, or a failure.
    """

    name = "images"
    needs_meta = frozenset({IDENTIFIER})  # what a stored request must have (frontier/codec.py)

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Have requests and responses go through the middlewares of pictures."""
        super().update_settings(settings)
        middlewares = settings.getdict("DOWNLOADER_MIDDLEWARES")
        settings.set("DOWNLOADER_MIDDLEWARES", {**middlewares, **_MIDDLEWARES}, priority="spider")

    def wanted_bytes(self, request: Request) -> int:
        """Return how many bytes of a body are read, 0 for all; the rest is not downloaded (net/handler.py)."""
        mode = mode_of(request)
        return 0 if mode is None else mode.wanted_bytes

    def meta_of(self, seed: Seed) -> dict[str, Any]:
        """Return which picture a seed is for, and in which mode."""
        return {IDENTIFIER: seed.identifier, MODE: None if seed.mode is None else list(seed.mode)}

    def who(self, request: Request) -> dict[str, Any]:
        """Return the fields that every item begins with: which picture `request` is for."""
        meta = request.meta
        return {
            "identifier": meta[IDENTIFIER],
            "url": without_userinfo(seed_url(request)),
            "source": meta[SOURCE],
        }

    def fetched(self, response: Response, request: Request) -> Any:
        """Return the item of a picture to analyse, that of its mode, or of one that its owner keeps back.

        An opt-out that does not forbid to keep it is noted, beside those of its robots.txt.
        """
        declared = opt_outs(response.headers, datetime.now(UTC))
        if refused := [f"{name} ({OPT_OUTS[name]})" for name in declared if name in self.config.opt_outs]:
            return Failure(KEPT_BACK, f"opt-out: {', '.join(refused)}", response.status)
        if declared:
            request.meta[OPT_OUT] = sorted({*declared, *request.meta.get(OPT_OUT, ())})
        version = Version.of(response.headers.get("ETag"), response.headers.get("Last-Modified"))
        said = {
            **self.who(request),
            "content_type": declared_type(response),
            "fetched_at": utc_now(),
            **Fetch.of(request, response.url)._asdict(),
            "opt_out": tuple(request.meta.get(OPT_OUT, ())),
            "tls_failure": request.meta.get(TLS_FAILURE),
            "extra": request.meta.get(EXTRA),
            "etag": version.etag or None,
            "last_modified": version.modified or None,
        }
        if (mode := mode_of(request)) is not None:
            return mode.item(said, response, request)
        codings = content_codings(response.headers.getlist("Content-Encoding"))
        return FetchedImage(said | request.meta.get(FOUND, {}), response.body, codings)


def declared_type(response: Response) -> str | None:
    """Return the content type of a response, as its site declares it, without parameters; None without one."""
    content_type = printable(header(response.headers, "Content-Type"))
    return content_type.partition(";")[0].strip().lower() or None
