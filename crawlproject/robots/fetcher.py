"""Requests one URL of a robots.txt or of where it redirects, with a send slot of the source that pays for it."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple
from urllib.parse import urldefrag, urljoin, urlsplit

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from w3lib.url import safe_url_string

from crawlproject.errors import AddressRefused, Excluded, NoNameServer, NoRoute, Paused, SlotMissed, Stopped
from crawlproject.imaging.codings import content_codings, decoded_beginning
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.models import REQUESTED, SLOT, SOURCE, Requested, Slot
from crawlproject.net.handler import WANTED_BYTES
from crawlproject.net.resolver import Resolver
from crawlproject.net.send_slot import try_send_slot
from crawlproject.politeness.robots_txt import MAX_BYTES, robots_url
from crawlproject.runtime import Shutdown
from crawlproject.sources.domains import domain_of_url, host_of_url, url_fault, with_canonical_host
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.texts import LONGEST_URL

_DOWNLOAD_S = 30.0  # the longest time that a download may take
_POLL_S = 0.25  # between checks whether the worker stops
_NO_ROOM_S = 1.0  # until one that found no room in the downloader is tried again
_NO_NAME_SERVER_S = 5.0
_EXCLUDED_S = 5.0  # until it is asked again whether a host is excluded
_TRY_AGAIN_S = 0.25  # after trouble with Redis


class Fetched(NamedTuple):
    """The result of a request.

    `kind` is "rules" (in `body`), "none" (there is no robots.txt: everything is allowed), "redirect" (to the URL
    in `body`), "refused" (it leads to a refused address, see `body`), "unreachable" (see `reason`), or "" when
    nothing was requested; it may be tried again after `wait` seconds. `requested` is the request that was sent, if
    one was.
    """

    kind: str
    body: bytes = b""
    cache_control: bytes | None = None
    reason: str = ""
    wait: float = 0.0
    requested: Requested | None = None


class RobotsFetcher:
    """Downloads through Scrapy's engine, so that the gate and the address guard see these requests, too."""

    def __init__(self, crawler: Crawler, state: State, resolver: Resolver, shutdown: Shutdown) -> None:
        self.crawler = crawler
        self.state = state
        self.resolver = resolver
        self.shutdown = shutdown
        self.under_way = 0  # places taken in the downloader, or about to be

    @property
    def has_room(self) -> bool:
        """Whether another download may begin: hanging hosts may take a quarter of the worker at most."""
        return self.under_way < max(self.crawler.settings.getint("CONCURRENT_REQUESTS") // 4, 1)

    async def fetch(
        self, url: str, origin: str, source: str, calls: AbstractAsyncContextManager[object]
    ) -> Fetched:
        """Request `url`, to which the robots.txt at `origin` has led, unless no slot is to be had within a second.

        `source` pays within the registrable domain of `origin`, others for themselves. `calls` bounds the
        concurrent calls to Redis.
        """
        await self.resolver.look_up(url)
        if not self.resolver.knows(url):
            return Fetched("", wait=_NO_NAME_SERVER_S)
        if refused := self.resolver.refusal(url):
            return _refused(refused)
        if failure := self.resolver.failure(url):
            return Fetched("unreachable", reason=failure)
        if not self.has_room:
            return Fetched("", wait=_NO_ROOM_S)
        self.under_way += 1
        try:
            return await self._get(url, origin, source, calls)
        finally:
            self.under_way -= 1

    async def _get(
        self, url: str, origin: str, source: str, calls: AbstractAsyncContextManager[object]
    ) -> Fetched:
        """Return the result of requesting `url`."""
        while True:
            slot = await self._slot(url, origin, source, calls)
            if isinstance(slot, Fetched):
                return slot
            meta: dict[str, Any] = {
                SLOT: slot,
                SOURCE: slot.source,  # for the log
                "dont_redirect": True,
                "handle_httpstatus_all": True,
                "download_timeout": min(self.state.config.download_timeout, _DOWNLOAD_S),
                WANTED_BYTES: MAX_BYTES + 1,  # RFC 9309, 2.5
            }
            # Not compressed, so that the bytes read can be counted.
            request = Request(url, meta=meta, headers={"Accept-Encoding": "identity"}, dont_filter=True)
            self.crawler.stats.inc_value("robots/requests")
            try:
                response = await self._download(request)
                fetched = Fetched("") if response is None else await _outcome(response)
            except SlotMissed:
                self.crawler.stats.inc_value("robots/slots_missed")
                continue
            except Exception as error:  # whatever a download can meet, and a Location can be
                fetched = _failed(error)
            return fetched._replace(requested=request.meta.get(REQUESTED))

    async def _slot(
        self, url: str, origin: str, source: str, calls: AbstractAsyncContextManager[object]
    ) -> Slot | Fetched:
        """Take a send slot of the source that pays; return why nothing is requested if there is none."""
        domain = domain_of_url(url)
        own = domain == domain_of_url(origin)
        try:
            slot = await try_send_slot(
                self.state,
                source=source if own else None,
                domain=None if own else domain,
                host=host_of_url(url),
                sent_by=None if own else source,
                calls=calls,
            )
        except Excluded as error:
            # What waits for its own host's robots.txt is excluded, too; others find that it is not to be had.
            if host_of_url(url) == host_of_url(origin):
                return Fetched("", wait=_EXCLUDED_S)
            return Fetched("unreachable", reason=str(error))
        except REDIS_TROUBLE as error:
            self.state.failed(error)
            return Fetched("", wait=_TRY_AGAIN_S)
        if not isinstance(slot, Slot):
            return Fetched("", wait=slot)
        return Fetched("") if self.shutdown.has_begun else slot

    async def _download(self, request: Request) -> Response | None:
        """Return the response; None when the worker stops, which does not wait for it."""
        download = asyncio.ensure_future(self.crawler.engine.download_async(request))
        # Its exception is retrieved, or asyncio would log it.
        download.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            while not download.done():
                await asyncio.wait([download], timeout=_POLL_S)
                if self.shutdown.has_begun:
                    return None
            response: Response = download.result()
            return response
        finally:
            download.cancel()


def _failed(error: Exception) -> Fetched:
    """Return what it means that a download has failed."""
    if isinstance(error, AddressRefused):
        return _refused(str(error))
    if isinstance(error, NoNameServer | NoRoute | Paused | Stopped):  # this worker's fault
        return Fetched("", wait=_NO_NAME_SERVER_S)
    own = isinstance(error, IgnoreRequest | UnreadableImage)  # our own words
    return Fetched("unreachable", reason=str(error) if own else f"{type(error).__name__}: {error}".strip())


def _refused(reason: str) -> Fetched:
    return Fetched("refused", f"robots.txt at a refused address: {reason}".encode())


def _redirected(url: str, location: bytes) -> str:
    """Return where a redirect leads, spelled one way, so that all who are sent there share what is found.

    Raises:
        ValueError: the URL is too long, or none.
        AddressRefused: the URL must not be requested.

    """
    if len(location) > LONGEST_URL:
        raise ValueError(f"it redirects to a URL of {len(location)} characters")
    target = with_canonical_host(urldefrag(urljoin(url, location.decode(errors="percentencode").strip())).url)
    if fault := url_fault(target):
        raise AddressRefused(fault)
    target = safe_url_string(target)
    parts = urlsplit(target)
    own_place = parts.path == "/robots.txt" and not parts.query and not parts.username
    return robots_url(target) if own_place else target


async def _outcome(response: Response) -> Fetched:
    """Return what a response means (RFC 9309, 2.3.1)."""
    cache_control = response.headers.get("Cache-Control")
    if 300 <= response.status < 400 and (location := response.headers.get("Location")):
        return Fetched("redirect", _redirected(response.url, location).encode(), cache_control)
    if 200 <= response.status < 300:
        return Fetched("rules", await _text(response), cache_control)
    if 300 <= response.status < 500:
        return Fetched("none", cache_control=cache_control)
    return Fetched("unreachable", reason=f"status {response.status}")


async def _text(response: Response) -> bytes:
    """Return what is read of a robots.txt, and a byte more; without content codings, which were not requested.

    Raises:
        UnreadableImage: they cannot be undone, or only in a long time.

    """
    received = response.body[: MAX_BYTES + 1]
    codings = content_codings(response.headers.getlist("Content-Encoding"))
    if not codings:
        return received
    return await asyncio.to_thread(decoded_beginning, received, codings, MAX_BYTES + 1)
