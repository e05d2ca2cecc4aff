"""The handler of http and https: what a request costs is bounded, in memory, in time, and in connections."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any, NamedTuple

from scrapy import Request, signals
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.crawler import Crawler
from scrapy.exceptions import (
    DownloadCancelledError,
    DownloadFailedError,
    DownloadTimeoutError,
    ResponseDataLossError,
    StopDownload,
)
from scrapy.http import Response
from scrapy.utils._download_handlers import (
    check_stop_download,
    get_maxsize_msg,
    make_response,
    normalize_bind_address,
    wrap_twisted_exceptions,
)
from scrapy.utils.datatypes import LocalCache
from scrapy.utils.misc import build_from_crawler
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.web.iweb import UNKNOWN_LENGTH

from crawlproject import config
from crawlproject.errors import AddressRefused, MemoryShort, Paused, StaleConnection, Stopped, TlsFailed
from crawlproject.models import (
    FETCH_TIME,
    HEADS,
    LEASE,
    PASSAGE,
    REQUESTED,
    SLOT,
    SOURCE,
    TLS_FAILURE,
    Lease,
    Requested,
)
from crawlproject.net.connections import Connection, Heads, Pool, Sending
from crawlproject.net.http1 import Answer, request_head
from crawlproject.net.route import route_of
from crawlproject.net.send_slot import Passage
from crawlproject.net.tls import ContextFactory, tls_failure
from crawlproject.politeness.outcomes import Sample, of_exception
from crawlproject.runtime import Runtime, runtime_of
from crawlproject.sources.domains import RECENT, domain_of_url
from crawlproject.state.client import REDIS_TROUBLE
from crawlproject.texts import printable, without_userinfo

WANTED_BYTES = "wanted_bytes"  # in meta: how many bytes of a body are wanted
# All response bodies being received together: hundreds of large ones must not exhaust the memory.
SOFT_LIMIT = 64 * 1024 * 1024  # bytes received of bodies under way; above it, nothing is leased
HARD_LIMIT = 2 * SOFT_LIMIT  # bytes
_PATIENCE_S = 2.0  # above `SOFT_LIMIT` until a body is aborted: no source keeps a worker idle by sending slowly

_TIMEOUT_S = 10.0  # as in Scrapy, where DOWNLOAD_TIMEOUT does not say

_PARTS = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[^][/?#:@]+)(?::([0-9]+))?([/?][^#]*)?(?:#.*)?", re.I)
_PORTS = {"http": 80, "https": 443}


@dataclass(slots=True, eq=False)
class Body:
    """A body being received for `source`; `abort` ends the download."""

    source: str
    abort: Callable[[], object]
    received: int = 0
    aborted: bool = False


class DownloadBudget:
    """Counts the bytes received of all bodies under way.

    Above `HARD_LIMIT` bytes, or after `_PATIENCE_S` above `SOFT_LIMIT`, the source with the most bytes loses its
    largest body. That request is tried again, with a delivery counted.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._under_way: set[Body] = set()
        self._received = 0
        self._over_since: float | None = None

    @property
    def over_soft_limit(self) -> bool:
        """Whether nothing more should be leased."""
        return self._received > SOFT_LIMIT

    def begin(self, source: str, abort: Callable[[], object]) -> Body:
        """Return the account of the body of a request that goes out."""
        body = Body(source, abort)
        self._under_way.add(body)
        return body

    def receive(self, body: Body, count: int) -> None:
        """Count `count` more bytes of `body`; abort a body if there are too many."""
        if body not in self._under_way:
            return
        body.received += count
        self._received += count
        if not self.over_soft_limit:
            return
        if self._over_since is None:
            self._over_since = self._now()
        if self._received > HARD_LIMIT or self._now() - self._over_since > _PATIENCE_S:
            shares: Counter[str] = Counter()
            for other in self._under_way:
                shares[other.source] += other.received
            (source, _), *_ = shares.most_common(1)
            of_source = [other for other in self._under_way if other.source == source]
            largest = max(of_source, key=lambda other: other.received)
            self.end(largest)
            largest.aborted = True
            largest.abort()

    def end(self, body: Body) -> None:
        """Forget a body that is complete or has failed."""
        if body in self._under_way:
            self._under_way.remove(body)
            self._received -= body.received
        if not self.over_soft_limit:
            self._over_since = None


@cache
def budget_of_process() -> DownloadBudget:
    """Return the budget that all crawlers of this process share."""
    return DownloadBudget()


class Site(NamedTuple):
    """What is the same for all requests to a site: the key of its connections, the value of Host, its endpoint."""

    key: tuple[Any, ...]
    host: bytes
    endpoint: Any


class Download(Answer):
    """The response to a request, and its body; `is_last` tells of each piece whether no more is wanted.

    `stopped`: a receiver of Scrapy's signals, or `is_last`, has said so.
    """

    def __init__(self, crawler: Crawler, request: Request, maxsize: int, is_last: Callable[[bytes], bool]) -> None:
        super().__init__(request.method)
        self.stopped: StopDownload | None = None
        self._crawler = crawler
        self._request = request
        self._maxsize = maxsize
        self._is_last = is_last
        self._since = time.monotonic()
        self._body = BytesIO()  # a list would need as much memory again to be joined

    def head_came(self) -> bool:
        """Take note of the head.

        Raises:
            DownloadCancelledError: its body would be too large.

        """
        self._request.meta["download_latency"] = time.monotonic() - self._since
        length: Any = UNKNOWN_LENGTH if self.length is None else self.length
        if self._ask(signals.headers_received, headers=self.headers, body_length=length):
            return True
        self._check_size(self.length or 0, expected=True)
        return False

    def received(self, piece: bytes) -> bool:
        """Take a piece of the body.

        Raises:
            DownloadCancelledError: it is too large.

        """
        self._body.write(piece)
        is_last = self._is_last(piece)
        if self._ask(signals.bytes_received, data=piece):
            return True
        if is_last:
            self.stopped = StopDownload(fail=False)
        else:
            self._check_size(self._body.tell(), expected=False)
        return is_last

    def _ask(self, signal: object, **what: Any) -> bool:
        self.stopped = check_stop_download(signal, self._crawler, self._request, **what)
        return self.stopped is not None

    def _check_size(self, size: int, *, expected: bool) -> None:
        if 0 < self._maxsize < size:
            raise DownloadCancelledError(get_maxsize_msg(size, self._maxsize, self._request, expected=expected))

    def forget(self) -> None:
        """Free the body: whoever has the exception that ended the download has all that its frames refer to."""
        self._body = BytesIO()

    def response(self, connection: Connection, flags: list[str]) -> Response:
        """Return what was read.

        Raises:
            StopDownload: a receiver of Scrapy's signals wants the request to fail, with this response.

        """
        return make_response(
            url=self._request.url.partition("#")[0],
            status=self.status,
            headers=self.headers,
            body=self._body.getvalue(),
            flags=[*flags, "partial"] if self.is_cut else flags,
            certificate=connection.certificate,
            ip_address=connection.ip,
            protocol=self.version,
            stop_download=self.stopped,
        )


class CrawlDownloadHandler(HTTP11DownloadHandler):
    """Downloads http and https within bounds, with Scrapy's settings and signals.

    A spider with a method `wanted_bytes(request)` gets no more of a body than the piece with the last of these;
    with `keeps_exchanges = True`, the heads as they went over the wire are in `meta["heads"]`. The size of headers
    is limited (net/http1.py). Few idle connections are kept, and only for a short time. Certificates are
    verified; with CRAWL_TLS_FAILURES=record, an invalid certificate is noted in `meta["tls_failure"]`. How long a
    download took, well or not, is noted in `meta["fetch_time"]`. The bodies under way share a budget
    (`DownloadBudget`). Requests still in flight when the shutdown grace ends are aborted, and fail as
    `Stopped`.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._connections = Pool()
        self._sites = LocalCache[Any, Site](RECENT)  # to make an endpoint takes longer than to write a request
        self._budget = budget_of_process()
        self._under_way: dict[Request, Body] = {}
        method = getattr(self._contextFactory, "_ssl_method", None)
        self._tls = build_from_crawler(ContextFactory, crawler, method=method)
        self._tls.records = config.load(crawler.settings).tls_failures == "record"
        own = crawler.settings["DOWNLOADER_CLIENTCONTEXTFACTORY"] != "SENTINEL"  # a project's own is used as it is
        if self._tls.records or not own:
            self._contextFactory = self._tls  # type: ignore[assignment]
        self._stop: asyncio.Task[None] | None = None

    async def download_request(self, request: Request) -> Response:
        """Download a request.

        Raises:
            MemoryShort: the bodies under way exceed their budget, and this body was chosen to be aborted.
            NoRoute: this worker reaches no site (net/route.py).
            Paused: the download failed after this worker stood still.
            SlotMissed: the request came here from the gate too late, or its connection was made too late.
            Stopped: the worker shuts down and cannot wait for the response.
            TlsFailed: no secure connection could be made.

        """
        runtime, lease = runtime_of(self._crawler), request.meta.get(LEASE)
        source = lease.source if lease is not None else request.meta.get(SOURCE, domain_of_url(request.url))
        return await route_of(self._crawler).watch(request, source, self._download(runtime, request, source))

    async def _download(self, runtime: Runtime, request: Request, source: str) -> Response:
        if self._stop is None:
            self._begin(runtime)
        leave: Passage | None = request.meta.pop(PASSAGE, None)
        request.meta.pop(HEADS, None)  # of another attempt
        sending = Sending(leave)
        task = asyncio.current_task()
        assert task is not None
        lease = request.meta.get(LEASE)
        began = asyncio.get_running_loop().time()
        body = self._under_way[request] = self._budget.begin(source, task.cancel)
        result = "none"
        try:
            if runtime.shutdown.grace_over.is_set():
                raise Stopped(f"aborted: {request.url}")
            response = await self._fetch(request, sending, body)
            result = str(response.status)
        except asyncio.CancelledError:
            if body.aborted:
                task.uncancel()
                self._crawler.stats.inc_value("download/broken_off")
                message = f"aborted after {body.received} bytes: too many large bodies at the same time"
                raise MemoryShort(message) from None
            if runtime.shutdown.grace_over.is_set():
                task.uncancel()
                raise Stopped(f"aborted: {request.url}") from None
            raise
        except Exception as error:
            self._tls.failed(sending.carrier, error)
            cause = _cause_of(error, runtime, began)
            result = "network" if isinstance(cause, StaleConnection) else of_exception(cause).noted or result
            if cause is not error:
                raise cause from error
            raise
        finally:
            del self._under_way[request]
            self._budget.end(body)
            request.meta[FETCH_TIME] = _time_taken(runtime, began, leave, lease)
            await _note(runtime, request, leave, result, body.received)
        if request.meta[FETCH_TIME] is None:
            request.meta.pop("download_latency", None)
        elif leave is not None:
            request.meta["download_latency"] -= leave.waited
        if failure := self._tls.answered(sending.carrier):
            request.meta[TLS_FAILURE] = failure
        return response

    async def _fetch(self, request: Request, sending: Sending, body: Body) -> Response:
        """Return the response of a request, as Scrapy's handler does.

        Raises:
            DownloadTimeoutError: it took longer than DOWNLOAD_TIMEOUT.
            DownloadCancelledError: its body is larger than DOWNLOAD_MAXSIZE.
            StopDownload: a receiver of Scrapy's signals wants it to fail.
            Exception: see `Pool.connection` and `Connection.exchange`.

        """
        seconds = request.meta.get("download_timeout") or _TIMEOUT_S
        wanted = self._wanted_bytes(request)
        # Of a beginning, however much there is
        bound = getattr(self._crawler.spider, "download_maxsize", self._default_maxsize)
        maxsize = 0 if wanted else request.meta.get("download_maxsize", bound)

        def is_last(piece: bytes) -> bool:
            self._budget.receive(body, len(piece))
            return 0 < wanted <= body.received

        try:
            async with asyncio.timeout(seconds) as limit:
                with wrap_twisted_exceptions():
                    site, target = self._site_of(request, seconds)
                    head = _head_of(request, target, site.host)
                    download = Download(self._crawler, request, maxsize, is_last)
                    connection = await self._connections.connection(site.key, site.endpoint, sending)
                    return await self._exchange(request, head, connection, download, sending.passage)
        except TimeoutError as error:
            if not limit.expired():
                raise
            late = f"Getting {request.url.partition('#')[0]} took longer than {seconds} seconds."
            raise DownloadTimeoutError(late) from error

    async def _exchange(
        self, request: Request, head: bytes, connection: Connection, download: Download, leave: Passage | None
    ) -> Response:
        if leave is not None:
            leave.use()
        flags = []
        try:
            await connection.exchange(head + request.body, download)
        except BaseException as error:
            fails = request.meta.get("download_fail_on_dataloss", self._fail_on_dataloss)
            if fails or not isinstance(error, ResponseDataLossError):
                download.forget()
                raise
            flags = ["dataloss"]
        if getattr(self._crawler.spider, "keeps_exchanges", False):
            request.meta[HEADS] = Heads(head, download.head, str(connection.ip))
        return download.response(connection, flags)

    def _site_of(self, request: Request, seconds: float) -> tuple[Site, bytes]:
        """Return the site of a request, and what is requested there."""
        if (parts := _PARTS.fullmatch(request.url)) is None:
            raise AddressRefused(
                f"URL that cannot be requested: {printable(without_userinfo(request.url[:1000]), 80)}"
            )
        scheme, name, port, rest = parts[1].lower(), parts[2], parts[3], parts[4] or "/"
        bind = normalize_bind_address(request.meta.get("bindaddress") or self._bind_address)
        which = (scheme, name, port, bind, seconds)
        if (site := self._sites.get(which)) is None:
            from twisted.internet import reactor

            number, host = int(port or _PORTS[scheme]), name.strip("[]")
            endpoint: Any = HostnameEndpoint(reactor, host, number, seconds, bind)
            if scheme == "https":
                policy: Any = self._contextFactory
                endpoint = wrapClientTLS(policy.creatorForNetloc(host.encode(), number), endpoint)
            shown = name if number == _PORTS[scheme] else f"{name}:{number}"
            site = self._sites[which] = Site((scheme, host, number, bind), shown.encode(), endpoint)
        return site, (rest if rest.startswith("/") else f"/{rest}").encode()

    def _begin(self, runtime: Runtime) -> None:
        self._stop = asyncio.create_task(self._abort_after_grace(runtime.shutdown.grace_over))

    async def _abort_after_grace(self, grace_over: asyncio.Event) -> None:
        await grace_over.wait()
        for body in list(self._under_way.values()):
            body.abort()

    def _wanted_bytes(self, request: Request) -> int:
        """Return how many bytes of a body are wanted, 0 for all of it."""
        wanted = getattr(self._crawler.spider, "wanted_bytes", None)
        if callable(wanted) and LEASE in request.meta:
            return int(wanted(request))
        return int(request.meta.get(WANTED_BYTES, 0))

    async def close(self) -> None:
        """Close the idle connections."""
        if self._stop is not None:
            self._stop.cancel()
        self._connections.close()


def _head_of(request: Request, target: bytes, host: bytes) -> bytes:
    """Return the head of a request, whose own header Host goes before that of its URL."""
    headers = request.headers.items()
    own = request.headers.getlist(b"Host")
    length = len(request.body) if request.body or request.method in {"POST", "PUT"} else None
    return request_head(
        request.method,
        target,
        own[0] if own else host,
        [(name, values) for name, values in headers if name != b"Host"],
        length,
    )


def _cause_of(error: Exception, runtime: Runtime, began: float) -> Exception:
    """Return why a download that began at `began` has failed: `error`, or what is behind it."""
    if runtime.pauses.overlap(began) and of_exception(error).sample is Sample.ERROR:
        return Paused(f"this worker stood still meanwhile ({type(error).__name__}: {error})")
    if isinstance(error, DownloadFailedError) and (failure := tls_failure(error)):
        return TlsFailed(failure)
    return error


def _time_taken(runtime: Runtime, began: float, leave: Passage | None, lease: Lease | None) -> float | None:
    """Return the seconds that a download took, without those for a slot; None if this worker stood still."""
    if runtime.pauses.overlap(began):
        return None
    ended = asyncio.get_running_loop().time()
    if lease is not None:
        lease.fetched = ended
    return ended - began - (0.0 if leave is None else leave.waited)


async def _note(runtime: Runtime, request: Request, leave: Passage | None, result: str, received: int) -> None:
    """Note what was requested, if a request was sent, for those who end its lease, or share its robots.txt.

    Any other (`scrapy shell`) is counted here.
    """
    if leave is None or leave.sent is None:
        return
    requested = Requested(leave.slot.source, leave.sent, leave.slot.rate, result, received)
    if (lease := request.meta.get(LEASE)) is not None:
        lease.requested = requested
        return
    if SLOT in request.meta:
        request.meta[REQUESTED] = requested
        return
    try:
        await runtime.state.shard_for(requested.source).scripts.note_request(requested)
    except REDIS_TROUBLE as error:
        runtime.state.failed(error)
