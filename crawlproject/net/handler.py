"""Scrapy's HTTP handler, bounded: in idle connections, in bodies under way, and in time at shutdown."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

from scrapy import Request, signals
from scrapy.core.downloader._idna_patch import _patched_idna_bytes
from scrapy.core.downloader.handlers import http11
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.crawler import Crawler
from scrapy.exceptions import DownloadFailedError, StopDownload
from scrapy.http import Response
from scrapy.utils.misc import build_from_crawler
from twisted.internet import endpoints

from crawlproject import config
from crawlproject.errors import MemoryShort, Paused, StaleConnection, Stopped, TlsFailed
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
from crawlproject.net import connections
from crawlproject.net.agent import SiteAgent
from crawlproject.net.connections import Heads, Sending
from crawlproject.net.route import route_of
from crawlproject.net.send_slot import Passage
from crawlproject.net.tls import ContextFactory, tls_failure
from crawlproject.politeness.outcomes import Sample, of_exception
from crawlproject.runtime import Runtime, runtime_of
from crawlproject.sources.domains import RECENT, domain_of_url
from crawlproject.state.client import REDIS_TROUBLE

WANTED_BYTES = "wanted_bytes"  # in meta: how many bytes of a body are wanted
# All response bodies being received together: hundreds of large ones must not exhaust the memory.
SOFT_LIMIT = 64 * 1024 * 1024  # bytes received of bodies under way; above it, nothing is leased
HARD_LIMIT = 2 * SOFT_LIMIT  # bytes
_PATIENCE_S = 2.0  # above `SOFT_LIMIT` until a body is aborted: no source keeps a worker idle by sending slowly

# Twisted spells the host of each request anew, also over a connection that was kept. With Scrapy's exceptions.
endpoints._idnaBytes = lru_cache(RECENT)(_patched_idna_bytes)  # type: ignore[attr-defined]
http11._BindAddressAgent = SiteAgent  # type: ignore[misc]  # Scrapy makes an agent for each request


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


class CrawlDownloadHandler(HTTP11DownloadHandler):
    """Scrapy's handler for http and https, bounded.

    A spider with a method `wanted_bytes(request)` gets no more of a body than the piece with the last of these;
    with `keeps_exchanges = True`, the heads as they went over the wire are in `meta["heads"]`. The size of headers
    is limited (net/connections.py). Few idle connections are kept, and only for a short time. Certificates are
    verified; with CRAWL_TLS_FAILURES=record, an invalid certificate is noted in `meta["tls_failure"]`. How long a
    download took, well or not, is noted in `meta["fetch_time"]`. The bodies under way share a budget
    (`DownloadBudget`). Requests still in flight when the shutdown grace ends are aborted, and fail as
    `Stopped`.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        from twisted.internet import reactor

        self._pool = connections.BoundedPool(reactor)
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
        sending = Sending(leave, self._heads_of(request))
        connections.sending.set(sending)
        task = asyncio.current_task()
        assert task is not None
        lease = request.meta.get(LEASE)
        if self._wanted_bytes(request):
            request.meta["download_maxsize"] = 0  # however much there is, `_received` takes the beginning
        began = asyncio.get_running_loop().time()
        body = self._under_way[request] = self._budget.begin(source, task.cancel)
        result = "none"
        try:
            if runtime.shutdown.grace_over.is_set():
                raise Stopped(f"aborted: {request.url}")
            response = await super().download_request(request)
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

    def _begin(self, runtime: Runtime) -> None:
        self._stop = asyncio.create_task(self._abort_after_grace(runtime.shutdown.grace_over))
        self._crawler.signals.connect(self._received, signal=signals.bytes_received)

    def _heads_of(self, request: Request) -> Heads | None:
        """Return where the heads of a request and its response go; None if this spider does not want them."""
        if not getattr(self._crawler.spider, "keeps_exchanges", False):
            return None
        heads = request.meta[HEADS] = Heads()
        return heads

    async def _abort_after_grace(self, grace_over: asyncio.Event) -> None:
        await grace_over.wait()
        for body in list(self._under_way.values()):
            body.abort()

    def _received(self, data: bytes, request: Request) -> None:
        """Count what was received; of a spider that wants only the beginning of a body, end the download there.

        Raises:
            StopDownload: Scrapy's way to keep what there is.

        """
        if (body := self._under_way.get(request)) is None:
            return
        self._budget.receive(body, len(data))
        wanted = self._wanted_bytes(request)
        if wanted and body.received >= wanted:
            raise StopDownload(fail=False)

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
        await super().close()


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
