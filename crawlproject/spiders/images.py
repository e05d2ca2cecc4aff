"""The spider that fetches images."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from scrapy import Request
from scrapy.http import Response
from scrapy.settings import BaseSettings

from crawlproject.frontier.codec import seed_url
from crawlproject.frontier.modes import mode_of
from crawlproject.imaging.codings import content_codings
from crawlproject.models import (
    EXTRA,
    FOUND,
    IDENTIFIER,
    MODE,
    OPT_OUT,
    OPT_OUTS,
    SOURCE,
    TLS_FAILURE,
    Fetch,
    FetchedImage,
    Seed,
    utc_now,
)
from crawlproject.politeness.optouts import opt_outs
from crawlproject.politeness.outcomes import KEPT_BACK, Failure
from crawlproject.politeness.versions import Version
from crawlproject.spiders.one_item import OneItemSpider
from crawlproject.texts import printable, without_userinfo

_MIDDLEWARES = {
    "crawlproject.middlewares.one_item.GoneMiddleware": 520,
}


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
            "content_type": _content_type(response),
            "fetched_at": utc_now(),
            "fetch": Fetch.of(request, response.url),
            "opt_out": tuple(request.meta.get(OPT_OUT, ())),
            "tls_failure": request.meta.get(TLS_FAILURE),
            "extra": request.meta.get(EXTRA),
            "etag": version.etag or None,
            "last_modified": version.modified or None,
        }
        if (mode := mode_of(request)) is not None:
            return mode.item(said, response, request)
        codings = content_codings(response.headers.getlist("Content-Encoding"))
        return FetchedImage(**said, body=response.body, codings=codings, found=request.meta.get(FOUND, {}))


def _content_type(response: Response) -> str | None:
    content_type = printable((response.headers.get("Content-Type") or b"").decode("latin-1"))
    return content_type.partition(";")[0].strip().lower() or None
