"""The spider that fetches images."""

from __future__ import annotations

from typing import Any

from scrapy import Request
from scrapy.http import Response

from crawlproject.frontier.codec import seed_url
from crawlproject.imaging.codings import content_codings
from crawlproject.models import (
    AGAIN,
    EXTRA,
    FOUND,
    IDENTIFIER,
    OPT_OUT,
    SOURCE,
    TLS_FAILURE,
    FetchedImage,
    Seed,
    utc_now,
)
from crawlproject.spiders.one_item import OneItemSpider, fetch_of
from crawlproject.texts import printable, without_userinfo


class ImagesSpider(OneItemSpider):
    """Fetches the pictures that `images:start_urls` names.

    Every response and every failure becomes exactly one item: a picture to analyse, link rot, or a failure.
    """

    name = "images"
    needs_meta = frozenset({IDENTIFIER})  # what a stored request must have (frontier/codec.py)

    def request_for(self, seed: Seed) -> Request:
        """Return the request of a seed."""
        meta: dict[str, Any] = {IDENTIFIER: seed.identifier}
        if seed.source is not None:
            meta[SOURCE] = seed.source
        if seed.again:
            meta[AGAIN] = True
        if seed.extra is not None:
            meta[EXTRA] = seed.extra
        return Request(seed.url, errback=self.failed, meta=meta, priority=seed.priority or 0)

    def who(self, request: Request) -> dict[str, Any]:
        """Return the fields that every item begins with: which picture `request` is for."""
        meta = request.meta
        return {
            "identifier": meta[IDENTIFIER],
            "url": without_userinfo(seed_url(request)),
            "source": meta[SOURCE],
        }

    def fetched(self, response: Response, request: Request) -> FetchedImage:
        """Return the item of a picture to analyse."""
        content_type = printable((response.headers.get("Content-Type") or b"").decode("latin-1"))
        return FetchedImage(
            **self.who(request),
            content_type=content_type.partition(";")[0].strip().lower() or None,
            fetched_at=utc_now(),
            fetch=fetch_of(response, request),
            body=response.body,
            codings=content_codings(response.headers.getlist("Content-Encoding")),
            opt_out=tuple(request.meta.get(OPT_OUT, ())),
            tls_failure=request.meta.get(TLS_FAILURE),
            found=request.meta.get(FOUND, {}),
            extra=request.meta.get(EXTRA),
        )
