"""Scrapy's HTTP handler, bounded: in idle connections, in what certificates it accepts, and in time at a stop."""

from __future__ import annotations

import asyncio
import resource
from collections import OrderedDict
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

from OpenSSL import SSL
from scrapy import Request, signals
from scrapy.core.downloader.contextfactory import _ScrapyClientContextFactory
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.crawler import Crawler
from scrapy.exceptions import DownloadFailedError
from scrapy.http import Response
from scrapy.utils.misc import build_from_crawler
from service_identity import CertificateError, VerificationError
from service_identity.hazmat import DNS_ID, IPAddress_ID, verify_service_identity
from service_identity.pyopenssl import extract_patterns
from twisted.internet import defer
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.web.client import HTTPConnectionPool
from zope.interface import implementer

from crawlproject import config
from crawlproject.errors import ConfigError, MemoryShort, SlotMissed, Stopped, TlsFailed
from crawlproject.models import LATEST, LEASE, TLS_FAILURE
from crawlproject.net.download_budget import Body
from crawlproject.net.protocol import BoundedFactory
from crawlproject.politeness.addresses import literal
from crawlproject.sources.domains import domain_of_url
from crawlproject.worker import worker_of

_IDLE = 15.0  # seconds that an unused connection is kept; Twisted's 240 would keep those of thousands of hosts
_MOST_IDLE = 128  # unused connections of all hosts together, for each of http and https
_MOST_IDLE_A_HOST = 64
_OTHER_FILES = 256  # Redis, the store, the log, name servers, pictures being decoded

_latest: ContextVar[float | None] = ContextVar("_latest", default=None)  # of the request that wants a connection
_carriers: ContextVar[list[Any] | None] = ContextVar("_carriers", default=None)  # what carries it: sockets, or TLS


class BoundedPool(HTTPConnectionPool):
    """Twisted's pool with a bound on all idle connections together; the one idle for longest goes first."""

    def __init__(self, reactor: Any) -> None:
        super().__init__(reactor, persistent=True)  # type: ignore[no-untyped-call]
        self.maxPersistentPerHost = _MOST_IDLE_A_HOST
        self.retryAutomatically = False  # without a send slot: see StaleConnection
        self._factory = BoundedFactory
        self.cachedConnectionTimeout = _IDLE  # type: ignore[assignment]
        self._idle: OrderedDict[Any, Any] = OrderedDict()  # connection -> key; the pool's own has no order

    def getConnection(self, key: Any, endpoint: Any) -> Any:  # noqa: N802
        """Return an idle connection, or a new one.

        Fails as SlotMissed when the request that wants it has slept on its way here from the gate for so long,
        on a machine that has too much to do, that it would go out too late.
        """
        latest = _latest.get()
        if latest is not None and asyncio.get_running_loop().time() > latest:
            return defer.fail(SlotMissed("the slot was missed on the way from the gate"))
        got = super().getConnection(key, endpoint)
        self._forget(key)
        if (carriers := _carriers.get()) is not None:

            def note(connection: Any) -> Any:
                carriers.append(connection.transport.getHandle())
                return connection

            got.addCallback(note)
        return got

    def _putConnection(self, key: Any, connection: Any) -> None:  # noqa: N802
        super()._putConnection(key, connection)  # type: ignore[no-untyped-call]
        if connection in self._timeouts:
            self._idle[connection] = key
        while len(self._timeouts) > _MOST_IDLE:
            oldest, its_key = self._idle.popitem(last=False)
            if oldest in self._timeouts:
                self._timeouts[oldest].cancel()
                self._removeConnection(its_key, oldest)

    def _removeConnection(self, key: Any, connection: Any) -> None:  # noqa: N802
        super()._removeConnection(key, connection)  # type: ignore[no-untyped-call]
        self._forget(key)

    def _forget(self, key: Any) -> None:
        """Let go of what is idle no more; Twisted keeps an empty list of every host that it ever met."""
        if not self._connections.get(key, True):
            del self._connections[key]
        while self._idle and next(iter(self._idle)) not in self._timeouts:
            self._idle.popitem(last=False)


def _words(error: int) -> str:
    """Return OpenSSL's words for an error of verification; pyOpenSSL has no public way to them."""
    text: bytes = SSL._ffi.string(SSL._lib.X509_verify_cert_error_string(error))  # type: ignore[attr-defined]
    return text.decode()


@implementer(IOpenSSLClientConnectionCreator)
class _Recording:
    """Makes connections to one host that go on with an invalid certificate, which is noted in `failures`."""

    def __init__(self, creator: Any, host: str, failures: WeakKeyDictionary[SSL.Connection, str]) -> None:
        self.creator = creator
        self.host = host
        self.failures = failures

    def clientConnectionForTLS(self, protocol: Any) -> SSL.Connection:  # noqa: N802
        """Return a connection that verifies, and minds nothing."""
        connection: SSL.Connection = self.creator.clientConnectionForTLS(protocol)
        connection.set_verify(SSL.VERIFY_PEER, self._note)
        return connection

    def _note(self, connection: SSL.Connection, certificate: Any, error: int, depth: int, ok: int) -> bool:
        reason = "" if ok else _words(error)
        if not reason and depth == 0:
            wanted = IPAddress_ID(self.host) if literal(self.host) else DNS_ID(self.host)
            try:
                verify_service_identity(extract_patterns(certificate), [wanted], [])
            except (CertificateError, VerificationError):
                reason = "certificate of another name"
        if reason:
            self.failures.setdefault(connection, reason)
        return True


class _RecordingContextFactory(_ScrapyClientContextFactory):
    """Scrapy's TLS settings, with certificates verified and failures recorded in place of refused."""

    failures: WeakKeyDictionary[SSL.Connection, str]

    def creatorForNetloc(self, hostname: bytes, port: int) -> Any:  # noqa: N802
        """Return what makes connections to a host."""
        creator = super().creatorForNetloc(hostname, port)
        return _Recording(creator, hostname.decode("ascii").lower(), self.failures)


def _tls_trouble(error: DownloadFailedError) -> str | None:
    """Return what was wrong with a secure connection, None if it was something else that failed."""
    for reason in getattr(error.__cause__, "reasons", ()):
        if isinstance(reason.value, VerificationError):
            return "certificate of another name"
        if isinstance(reason.value, SSL.Error):
            details = reason.value.args[0] if reason.value.args else ()
            return ", ".join(str(part[-1]) for part in details) or "broken off"
    return None


class CrawlDownloadHandler(HTTP11DownloadHandler):
    """Scrapy's handler for http and https, with bounds of ours.

    Headers must end (net/protocol.py). Idle connections are kept for a short time, and not too many.
    Certificates are verified; with CRAWL_TLS_FAILURES=record, one that is not valid is noted in
    `meta["tls_failure"]`. The bodies under way are bounded together (net/download_budget.py). When the time that a
    stop gives to requests in flight is over they are broken off, and end as `Stopped`.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        from twisted.internet import reactor

        self._pool = BoundedPool(reactor)
        self._under_way: dict[Request, Body] = {}
        self._failures: WeakKeyDictionary[SSL.Connection, str] | None = None
        if config.load(crawler.settings).tls_failures == "record":
            recording = build_from_crawler(_RecordingContextFactory, crawler)
            recording.failures = self._failures = WeakKeyDictionary()
            self._contextFactory = recording  # type: ignore[assignment]
        self._stop: asyncio.Task[None] | None = None

    async def download_request(self, request: Request) -> Response:
        """Carry out a request.

        Raises:
            MemoryShort: the bodies under way together take more memory than they may, this one the most.
            SlotMissed: it has come here from the gate too late.
            Stopped: the worker stops, and cannot wait for the response.
            TlsFailed: there is no secure connection to be had.

        """
        worker = worker_of(self._crawler)
        if self._stop is None:
            self._stop = asyncio.create_task(self._break_off(worker.shutdown.grace_over))
            self._crawler.signals.connect(self._received, signal=signals.bytes_received)
        _latest.set(request.meta.pop(LATEST, None))
        carriers: list[Any] = []
        _carriers.set(carriers if self._failures is not None else None)
        task = asyncio.current_task()
        assert task is not None
        lease = request.meta.get(LEASE)
        source = lease.source if lease is not None else domain_of_url(request.url)
        body = self._under_way[request] = worker.download_budget.begin(source, task.cancel)
        try:
            if worker.shutdown.grace_over.is_set():
                raise Stopped(f"broken off: {request.url}")
            response = await super().download_request(request)
        except asyncio.CancelledError:
            if body.broken_off:
                task.uncancel()
                self._crawler.stats.inc_value("download/broken_off")
                message = f"broken off after {body.received} bytes: too many came in at the same time"
                raise MemoryShort(message) from None
            if worker.shutdown.grace_over.is_set():
                task.uncancel()
                raise Stopped(f"broken off: {request.url}") from None
            raise
        except DownloadFailedError as error:
            if trouble := _tls_trouble(error):
                raise TlsFailed(trouble) from error
            raise
        finally:
            del self._under_way[request]
            worker.download_budget.end(body)
        if self._failures and carriers and (failure := self._failures.get(carriers[-1])):
            request.meta[TLS_FAILURE] = failure
        return response

    async def _break_off(self, grace_over: asyncio.Event) -> None:
        await grace_over.wait()
        for body in list(self._under_way.values()):
            body.break_off()

    def _received(self, data: bytes, request: Request) -> None:
        if body := self._under_way.get(request):
            worker_of(self._crawler).download_budget.receive(body, len(data))

    async def close(self) -> None:
        """Close the idle connections."""
        if self._stop is not None:
            self._stop.cancel()
        await super().close()


def check_open_files(concurrent: int) -> None:
    """Make sure that a worker of `concurrent` requests may open the files it needs; raise the soft limit to that.

    A host with several addresses may be tried at two at a time.

    Raises:
        ConfigError: the hard limit (`ulimit -Hn`) is lower.

    """
    needed = 2 * concurrent + 2 * _MOST_IDLE + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise ConfigError(
                f"ulimit -n is {hard}: a worker with CONCURRENT_REQUESTS={concurrent} may need {needed} open "
                f"files; raise the limit (ulimit -Hn, LimitNOFILE of systemd), or lower CONCURRENT_REQUESTS"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
