"""The spider that fetches images."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from scrapy import Request
from scrapy.http import Response
from scrapy.settings import BaseSettings

from crawlproject.frontier.codec import seed_url
from crawlproject.imaging.codings import content_codings
from crawlproject.models import (
    EXTRA,
    FOUND,
    IDENTIFIER,
    OPT_OUT,
    OPT_OUTS,
    PROBE,
    SOURCE,
    Fetch,
    FetchedBeginning,
    FetchedImage,
    ProbeEvent,
    Seed,
    utc_now,
)
from crawlproject.politeness.optouts import opt_outs
from crawlproject.politeness.outcomes import KEPT_BACK, Failure
from crawlproject.politeness.probes import PROBE_BYTES, Known, Part, Version
from crawlproject.spiders.one_item import OneItemSpider
from crawlproject.texts import printable, without_userinfo

_MIDDLEWARES = {
    "crawlproject.middlewares.one_item.ProbeMiddleware": 510,
    "crawlproject.middlewares.one_item.GoneMiddleware": 520,
}


class ImagesSpider(OneItemSpider):
    """Fetches the pictures that `images:start_urls` names, or the beginnings of those that are only probed.

    Every response becomes exactly one item: a picture to analyse, a beginning, link rot, or a
    failure.
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
        """Return how many bytes of a body are read, 0 for all; the rest is not downloaded (net/handler.py).

        One more than a site is asked for: with the last byte of an answer its connection may serve the next one.
        """
        return PROBE_BYTES + 1 if PROBE in request.meta else 0

    def meta_of(self, seed: Seed) -> dict[str, Any]:
        """Return which picture a seed is for, and what is known of one that is only probed."""
        return {IDENTIFIER: seed.identifier, PROBE: None if seed.probe is None else dict(seed.probe)}

    def who(self, request: Request) -> dict[str, Any]:
        """Return the fields that every item begins with: which picture `request` is for."""
        meta = request.meta
        return {
            "identifier": meta[IDENTIFIER],
            "url": without_userinfo(seed_url(request)),
            "source": meta[SOURCE],
        }

    def fetched(
        self, response: Response, request: Request
    ) -> FetchedImage | FetchedBeginning | ProbeEvent | Failure:
        """Return the item of a picture to analyse, of one that is probed, or of one that its owner keeps back.

        An opt-out that does not forbid to keep it is noted, beside those of its robots.txt.
        """
        declared = opt_outs(response.headers, datetime.now(UTC))
        if refused := [f"{name} ({OPT_OUTS[name]})" for name in declared if name in self.config.opt_outs]:
            return Failure(KEPT_BACK, f"opt-out: {', '.join(refused)}", response.status)
        if declared:
            request.meta[OPT_OUT] = sorted({*declared, *request.meta.get(OPT_OUT, ())})
        if PROBE in request.meta:
            return self._probed(response, request)
        version = _version_of(response)
        return FetchedImage(
            **self.who(request),
            content_type=_content_type(response),
            fetched_at=utc_now(),
            fetch=Fetch.of(request, response.url),
            body=response.body,
            codings=content_codings(response.headers.getlist("Content-Encoding")),
            opt_out=tuple(request.meta.get(OPT_OUT, ())),
            found=request.meta.get(FOUND, {}),
            extra=request.meta.get(EXTRA),
            etag=version.etag or None,
            last_modified=version.modified or None,
        )

    def _probed(self, response: Response, request: Request) -> FetchedBeginning | ProbeEvent:
        """Return the item of a picture that is there; one that has not changed has sent nothing to look at."""
        known, version = Known.of(request.meta[PROBE]), _version_of(response)
        codings = content_codings(response.headers.getlist("Content-Encoding"))
        is_unchanged = response.status == 304
        body = response.body[:PROBE_BYTES]
        total, whole = _extent(response, len(body))
        filesize = None if codings else total  # a coded size is not the picture's
        if is_unchanged:  # a site need not repeat what it was asked by
            filesize = known.filesize if known.filesize >= 0 else None
            version = Version(version.etag or known.etag, version.modified or known.last_modified)
        event = ProbeEvent(
            **self.who(request),
            width=None,
            height=None,
            filesize=filesize,
            compression_quality=None,
            format=None,
            content_type=_content_type(response),
            sha256=None,
            exif=None,
            etag=version.etag or None,
            last_modified=version.modified or None,
            revisit="unchanged" if is_unchanged else known.found(version, filesize),
            received=len(response.body),
            fetched_at=utc_now(),
            status=response.status,
            **asdict(Fetch.of(request, response.url)),
            opt_out=tuple(request.meta.get(OPT_OUT, ())),
            extra=request.meta.get(EXTRA),
        )
        if is_unchanged:
            return event
        return FetchedBeginning(event, body, codings, whole)


def _extent(response: Response, kept: int) -> tuple[int | None, bool]:
    """Return how many bytes the body has in all, None for unknown, and whether the first `kept` are all of it."""
    received = len(response.body)
    if response.status == 206:
        part = Part.of(response.headers.get("Content-Range"))
        if part is None or part.total is None or part.total < received:  # the last is none
            return None, False
        return part.total, part.total == kept
    if "download_stopped" not in response.flags:
        return received, received == kept
    length = response.headers.get("Content-Length") or b""
    return int(length) if length.isdigit() and len(length) < 19 else None, False


def _content_type(response: Response) -> str | None:
    content_type = printable((response.headers.get("Content-Type") or b"").decode("latin-1"))
    return content_type.partition(";")[0].strip().lower() or None


def _version_of(response: Response) -> Version:
    return Version.of(response.headers.get("ETag"), response.headers.get("Last-Modified"))
