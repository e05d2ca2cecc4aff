"""Fetches a robots.txt, following redirects; each request has a send slot of the source that pays for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple
from urllib.parse import urljoin

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest, StopDownload
from scrapy.http import Response

from crawlproject.errors import AddressRefused, NoNameServer, SlotMissed
from crawlproject.models import SLOT, SOURCE
from crawlproject.net.resolver import Resolver
from crawlproject.net.send_slot import take_send_slot
from crawlproject.politeness.addresses import check_url
from crawlproject.politeness.robots_txt import MAX_BYTES
from crawlproject.sources.domains import domain_of_url
from crawlproject.state.client import State
from crawlproject.texts import LONGEST_URL
from crawlproject.worker import Shutdown

MAX_REDIRECTS = 5  # RFC 9309, 2.3.1.2: at least five are to be followed

_PATIENCE_S = 60.0  # for a send slot; twice as long as a download may take
_POLL_S = 0.25  # between checks whether the worker stops
_MAX_DOWNLOAD = (
    50_000_000  # bytes (RFC 9309, 2.5), whatever DOWNLOAD_MAXSIZE is; only the first MAX_BYTES are read
)


class Fetched(NamedTuple):
    """The result of a fetch.

    `kind` is "rules" (in `body`), "none" (there is no robots.txt: everything is allowed), "refused" (it leads to a
    refused address, see `body`), "unreachable" (see `reason`), or "" when nothing was requested.
    """

    kind: str
    body: bytes = b""
    cache_control: bytes | None = None
    reason: str = ""


class RobotsFetcher:
    """Downloads through Scrapy's engine, so that the gate and the address guard see these requests, too."""

    def __init__(self, crawler: Crawler, state: State, resolver: Resolver, shutdown: Shutdown) -> None:
        self.crawler = crawler
        self.state = state
        self.resolver = resolver
        self.shutdown = shutdown
        self._received: dict[Request, int] = {}  # bytes of the downloads under way

    @property
    def under_way(self) -> int:
        """How many downloads there are."""
        return len(self._received)

    async def fetch(self, origin: str, source: str, calls: AbstractAsyncContextManager[object]) -> Fetched:
        """Fetch the robots.txt at `origin`; `source` pays within its registrable domain, others for themselves.

        `calls` bounds the concurrent calls to Redis.
        """
        url = origin
        for _ in range(MAX_REDIRECTS + 1):
            try:
                outcome = await self._refusal(url) or await self._get(url, source, origin, calls)
                if isinstance(outcome, Fetched):
                    return outcome
                url = outcome
            except AddressRefused as error:
                return _refused(str(error))
            except IgnoreRequest as error:
                # Without a name server nothing was requested.
                return Fetched("" if isinstance(error, NoNameServer) else "unreachable", reason=str(error))
            except Exception as error:  # whatever a download can meet, and a Location can be
                return Fetched("unreachable", reason=f"{type(error).__name__}: {error}".strip())
        return Fetched("none")  # RFC 9309, 2.3.1.2: after too many redirects it may be taken for unavailable

    async def _refusal(self, url: str) -> Fetched | None:
        """Return why `url` cannot be requested, before a slot is spent on it; None if it can."""
        await self.resolver.look_up(url)
        if not self.resolver.knows(url):
            return Fetched("")
        if refused := self.resolver.refusal(url):
            return _refused(refused)
        failure = self.resolver.failure(url)
        return Fetched("unreachable", reason=failure) if failure else None

    async def _get(
        self, url: str, source: str, origin: str, calls: AbstractAsyncContextManager[object]
    ) -> Fetched | str:
        """Return the result of requesting `url`, or the URL that it redirects to.

        Waiting for a slot takes up no place in the downloader. The slot may be minutes ahead, if the source is
        slow; the lock on `origin` outlasts it.
        """
        domain = domain_of_url(url)
        payer = {"source": source} if domain == domain_of_url(origin) else {"domain": domain}
        while True:
            slot = await take_send_slot(
                self.state,
                self.shutdown,
                **payer,
                fetch_lock=origin,
                patience_s=_PATIENCE_S,
                is_ready=self._has_room,
                calls=calls,
            )
            if slot is None:
                return Fetched("")
            meta: dict[str, Any] = {
                SLOT: slot,
                SOURCE: payer.get("source", domain),  # for the log
                "dont_redirect": True,
                "handle_httpstatus_all": True,
                "download_timeout": min(self.state.config.download_timeout, _PATIENCE_S / 2),
                "download_maxsize": _MAX_DOWNLOAD,
            }
            # Not compressed, so that the bytes read can be counted.
            request = Request(url, meta=meta, headers={"Accept-Encoding": "identity"}, dont_filter=True)
            self.crawler.stats.inc_value("robots/requests")
            try:
                response = await self._download(request)
            except SlotMissed:
                self.crawler.stats.inc_value("robots/slots_missed")
                continue
            return Fetched("") if response is None else _outcome(response)

    def _has_room(self) -> bool:
        """Tell whether another download may begin: hanging hosts may take a quarter of the worker at most."""
        return self.under_way < max(self.crawler.settings.getint("CONCURRENT_REQUESTS") // 4, 1)

    async def _download(self, request: Request) -> Response | None:
        """Return the response; None when the worker stops, which does not wait for it."""
        connect: Callable[..., None] = self.crawler.signals.connect
        if not self._received:
            connect(self._bytes_received, signal=signals.bytes_received)
        self._received[request] = 0
        download = asyncio.ensure_future(self.crawler.engine.download_async(request))
        download.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # retrieved, for asyncio's log
        try:
            while not download.done():
                await asyncio.wait([download], timeout=_POLL_S)
                if self.shutdown.has_begun:
                    return None
            response: Response = download.result()
            return response
        finally:
            download.cancel()
            del self._received[request]
            if not self._received:
                self.crawler.signals.disconnect(self._bytes_received, signal=signals.bytes_received)

    def _bytes_received(self, data: bytes, request: Request) -> None:
        """Stop the download after `MAX_BYTES` (RFC 9309, 2.5)."""
        if request not in self._received:
            return
        self._received[request] += len(data)
        if self._received[request] > MAX_BYTES:
            raise StopDownload(fail=False)


def _refused(reason: str) -> Fetched:
    return Fetched("refused", f"robots.txt at a refused address: {reason}".encode())


def _redirected(url: str, location: bytes) -> str:
    """Return where a redirect leads.

    Raises:
        ValueError: the URL is too long.
        AddressRefused: the URL must not be requested.

    """
    if len(location) > LONGEST_URL:
        raise ValueError(f"it redirects to a URL of {len(location)} characters")
    target = urljoin(url, location.decode("latin-1").strip())
    if fault := check_url(target):
        raise AddressRefused(fault)
    return target


def _outcome(response: Response) -> Fetched | str:
    """Return what a response means (RFC 9309, 2.3.1), or the URL that it redirects to."""
    if 300 <= response.status < 400 and (location := response.headers.get("Location")):
        return _redirected(response.url, location)
    cache_control = response.headers.get("Cache-Control")
    if 200 <= response.status < 300:
        return Fetched("rules", response.body[: MAX_BYTES + 1], cache_control)
    if 300 <= response.status < 500:
        return Fetched("none", cache_control=cache_control)
    return Fetched("unreachable", reason=f"status {response.status}")
