"""The spider that fetches images."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast

from scrapy import Request, Spider
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    ResponseDataLossError,
)
from scrapy.http import Response
from scrapy.settings import BaseSettings
from twisted.internet.error import ConnectError, ConnectionDone, ConnectionLost
from twisted.python.failure import Failure as TwistedFailure

from crawlproject import config
from crawlproject.errors import (
    AddressRefused,
    MemoryShort,
    NoNameServer,
    OptedOut,
    RobotsDisallowed,
    RobotsUnreachable,
    Stopped,
    TlsFailed,
)
from crawlproject.frontier.codec import seed_url
from crawlproject.models import (
    AGAIN,
    IDENTIFIER,
    MEMORY,
    OPT_OUT,
    SOURCE,
    STOPPED,
    TLS_FAILURE,
    Failure,
    FetchedImage,
    LinkRotEvent,
    Seed,
    utc_now,
)
from crawlproject.texts import printable, without_userinfo

# Trouble on the way to a site that another attempt may not meet, and the kind it is counted under.
_PASSING: tuple[tuple[type[BaseException], str], ...] = (
    (DownloadTimeoutError, "timeout"),
    (CannotResolveHostError, "dns"),
    (TlsFailed, "tls"),
    (DownloadConnectionRefusedError, "refused"),
    (DownloadFailedError, "network"),
    (ResponseDataLossError, "network"),
    (ConnectError, "network"),
    (ConnectionDone, "network"),
    (ConnectionLost, "network"),
    (OSError, "network"),
)


class ImagesSpider(Spider):
    """Fetches the pictures that `images:start_urls` names.

    Every response and every failure becomes exactly one item: a picture to look at, link rot, or a failure.
    """

    name = "images"
    needs_meta = frozenset({IDENTIFIER})  # what a stored request must have (frontier/codec.py)

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Validate the settings and say in the User-Agent who we are."""
        super().update_settings(settings)
        settings.set("USER_AGENT", config.load(settings).user_agent, priority="spider")

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
        if status == 200:
            content_type = printable((response.headers.get("Content-Type") or b"").decode("latin-1"))
            return FetchedImage(
                **who,
                content_type=content_type.partition(";")[0].strip().lower() or None,
                fetched_at=utc_now(),
                body=response.body,
                codings=_codings(response),
                opt_out=tuple(request.meta.get(OPT_OUT, ())),
                tls_failure=request.meta.get(TLS_FAILURE),
            )
        if status in {404, 410}:
            return LinkRotEvent(**who, status=status, time=utc_now())
        asked = retry_after(response.headers.get("Retry-After"), _their_time(response))
        return Failure(
            **who,
            kind="http",
            reason=f"status {status}",
            status=status,
            retryable=status >= 500 or status == 429,
            throttled=status == 429 or (status == 503 and asked is not None),
            retry_after=asked,
        )

    def failed(self, failure: TwistedFailure) -> Failure:
        """Return the item of a request that got no response, or none that we may keep."""
        request: Request = failure.request  # type: ignore[attr-defined]
        return Failure(
            **_who(request), **_trouble(cast("Exception", failure.value), self.settings.getint("DOWNLOAD_MAXSIZE"))
        )


def _trouble(error: BaseException, maxsize: int) -> dict[str, Any]:
    """Return what an exception means: kind, reason, and whether another attempt may succeed."""
    text = printable(str(error).strip().partition("\n")[0], 300) or type(error).__name__
    said: dict[str, Any]
    match error:
        case OptedOut():
            said = {"kind": "opt_out", "reason": f"opt-out: {error}", "status": 200}
        case RobotsDisallowed():
            said = {"kind": "robots", "reason": str(error)}
        case RobotsUnreachable():
            said = {"kind": "robots", "reason": str(error), "retryable": True, "retry_after": error.retry_in}
        case AddressRefused():
            said = {"kind": "refused_by_us", "reason": str(error)}
        case MemoryShort():
            said = {"kind": MEMORY, "reason": str(error)}
        case Stopped() | NoNameServer():
            said = {"kind": STOPPED, "reason": str(error)}
        case DownloadCancelledError():
            said = {"kind": "too_large", "reason": f"larger than DOWNLOAD_MAXSIZE ({maxsize} bytes)"}
        case _ if kind := next((kind for passing, kind in _PASSING if isinstance(error, passing)), None):
            said = {"kind": kind, "reason": f"{kind}: {text}", "retryable": True}
        case _:
            kind = "refused_by_us" if isinstance(error, IgnoreRequest) else "error"
            said = {"kind": kind, "reason": f"{type(error).__name__}: {text}"}
    return said


def _who(request: Request) -> dict[str, Any]:
    """Return whose picture `request` is about: what every item begins with."""
    meta = request.meta
    return {"identifier": meta[IDENTIFIER], "url": without_userinfo(seed_url(request)), "source": meta[SOURCE]}


def _codings(response: Response) -> tuple[str, ...]:
    """Return the content codings of a response, in lower case, in the order they were applied in."""
    named = b",".join(response.headers.getlist("Content-Encoding")).decode("latin-1").lower().split(",")
    return tuple(name for name in map(str.strip, named) if name not in {"", "identity"})


def retry_after(value: bytes | None, now: datetime) -> float | None:
    """Return the seconds that a Retry-After header asks for (RFC 9110, section 10.2.3), None without one."""
    text = (value or b"").decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        return float(text[:10])
    try:
        then = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return max((then - now).total_seconds(), 0.0)


def _their_time(response: Response) -> datetime:
    """Return the site's own time, by which it says when to come back; ours, where it tells none."""
    try:
        then = parsedate_to_datetime((response.headers.get("Date") or b"").decode("latin-1"))
    except (ValueError, OverflowError):
        return datetime.now(UTC)
    return then if then.tzinfo is not None else then.replace(tzinfo=UTC)
