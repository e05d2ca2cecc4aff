"""The spider that fetches images."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any, cast

from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.settings import BaseSettings
from twisted.python.failure import Failure as TwistedFailure

from crawlproject import config
from crawlproject.errors import OptedOut, RobotsUnreachable
from crawlproject.frontier.codec import seed_url
from crawlproject.imaging.codings import content_codings
from crawlproject.models import (
    AGAIN,
    FETCH_TIME,
    FREE_RETRIES,
    IDENTIFIER,
    OPT_OUT,
    RETRIES,
    SOURCE,
    TLS_FAILURE,
    Failure,
    Fetch,
    FetchedImage,
    LinkRotEvent,
    Seed,
    utc_now,
)
from crawlproject.politeness.failures import reason_of, retry_after_of
from crawlproject.politeness.outcomes import Becomes, of_exception, of_status
from crawlproject.texts import printable, without_userinfo

# No callback makes a request; and every status reaches the spider, which makes an item for each lease.
_UNUSED = {
    "DOWNLOADER_MIDDLEWARES": (
        "crawlproject.middlewares.offsite.OffsiteMiddleware",
        "scrapy.downloadermiddlewares.httpauth.HttpAuthMiddleware",
    ),
    "SPIDER_MIDDLEWARES": (
        "crawlproject.middlewares.found.FoundRequestsMiddleware",
        "scrapy.spidermiddlewares.start.StartSpiderMiddleware",
        "scrapy.spidermiddlewares.httperror.HttpErrorMiddleware",
        "scrapy.spidermiddlewares.urllength.UrlLengthMiddleware",
        "scrapy.spidermiddlewares.depth.DepthMiddleware",
        "scrapy.spidermiddlewares.metacopy.MetaCopyDetectionMiddleware",
    ),
}


class ImagesSpider(Spider):
    """Fetches the pictures that `images:start_urls` names.

    Every response and every failure becomes exactly one item: a picture to analyse, link rot, or a failure.
    """

    name = "images"
    one_item_each = True  # a lease ends with its item (extensions/lease_keeper.py)
    needs_meta = frozenset({IDENTIFIER})  # what a stored request must have (frontier/codec.py)
    stored_attributes = frozenset[str]()  # and may have, beside URL, meta, callback and errback
    stored_headers = frozenset({"Referer"})

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Validate the settings, and leave out the middlewares that would have nothing to do."""
        super().update_settings(settings)
        config.load(settings)
        for name, unused in _UNUSED.items():
            settings.set(name, {**settings.getdict(name), **dict.fromkeys(unused)}, priority="spider")

    async def start(self) -> AsyncIterator[Any]:
        """Yield nothing: the frontier reads the seeds."""
        return
        yield

    def request_for(self, seed: Seed) -> Request:
        """Return the request of a seed."""
        meta: dict[str, Any] = {IDENTIFIER: seed.identifier}
        if seed.source is not None:
            meta[SOURCE] = seed.source
        if seed.again:
            meta[AGAIN] = True
        return Request(seed.url, errback=self.failed, meta=meta, priority=seed.priority)

    def parse(self, response: Response) -> FetchedImage | LinkRotEvent | Failure:
        """Return the item of a response."""
        request = response.request
        assert request is not None
        who = _who(request)
        status = response.status
        wait = retry_after_of(response)
        outcome = of_status(status, wait)
        if outcome.becomes is Becomes.LINK_ROT:
            return LinkRotEvent(**who, status=status, time=utc_now(), **asdict(_fetch(response, request)))
        if outcome.becomes is not Becomes.IMAGE:
            return Failure(**who, outcome=outcome, reason=f"status {status}", status=status, retry_after=wait)
        content_type = printable((response.headers.get("Content-Type") or b"").decode("latin-1"))
        return FetchedImage(
            **who,
            content_type=content_type.partition(";")[0].strip().lower() or None,
            fetched_at=utc_now(),
            fetch=_fetch(response, request),
            body=response.body,
            codings=content_codings(response.headers.getlist("Content-Encoding")),
            opt_out=tuple(request.meta.get(OPT_OUT, ())),
            tls_failure=request.meta.get(TLS_FAILURE),
        )

    def failed(self, failure: TwistedFailure) -> Failure:
        """Return the item of a request without a response, or with one that we may not keep."""
        request: Request = failure.request  # type: ignore[attr-defined]
        error = cast("BaseException", failure.value)
        outcome = of_exception(error)
        return Failure(
            **_who(request),
            outcome=outcome,
            reason=reason_of(error, outcome, self.settings.getint("DOWNLOAD_MAXSIZE")),
            status=200 if isinstance(error, OptedOut) else None,
            retry_after=error.retry_in if isinstance(error, RobotsUnreachable) else None,
        )


def _who(request: Request) -> dict[str, Any]:
    """Return the fields that every item begins with: which picture `request` is for."""
    meta = request.meta
    return {"identifier": meta[IDENTIFIER], "url": without_userinfo(seed_url(request)), "source": meta[SOURCE]}


def _fetch(response: Response, request: Request) -> Fetch:
    """Return how a response was obtained."""
    meta = request.meta
    took = meta.get(FETCH_TIME)
    return Fetch(
        final_url=without_userinfo(response.url),
        redirects=len(meta.get("redirect_urls", ())),
        attempts=1 + meta.get(RETRIES, 0) + meta.get(FREE_RETRIES, 0),
        fetch_s=None if took is None else round(took, 3),
    )
