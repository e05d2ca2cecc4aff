"""Connections to sites: few are kept open, for a short time, and a request goes out over one only in its slot."""

# mypy: disable-error-code="no-untyped-call"
# Twisted has no types.

from __future__ import annotations

import asyncio
import resource
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from OpenSSL import SSL
from scrapy.exceptions import DownloadFailedError, ResponseDataLossError
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet import protocol
from twisted.internet.abstract import FileDescriptor
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IHandshakeListener, ITCPTransport
from twisted.internet.protocol import connectionDone
from twisted.internet.ssl import Certificate
from twisted.protocols.tls import BufferingTLSTransport, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from crawlproject.errors import ConfigError, SlotMissed, SlotMissedHere, StaleConnection
from crawlproject.net.http1 import Answer
from crawlproject.net.send_slot import Passage

_IDLE_S = 15.0  # how long an unused connection is kept
_MAX_IDLE = 128  # unused connections of all hosts together, for each of http and https
_MAX_IDLE_A_HOST = 64
_LEAST_CONCURRENT = 16
_OTHER_FILES = 256  # Redis, the storage, the log, name servers, pictures being decoded

# Bytes of framing, at least: the headers of TCP and IP for a read; header, type and tag of a TLS record
_READ, _RECORD = 40, 22
_LONGEST_RECORD = 16_384


@dataclass(slots=True)
class Heads:
    """The heads of one request and its response, each with its empty line; b"" if unknown.

    They are as they went over the wire: Scrapy's headers have lost their spelling and their order. Those of
    interim responses (1xx) are left out. `ip` is the address that the request was sent to.
    """

    request: bytes = b""
    response: bytes = b""
    ip: str = ""


@dataclass(slots=True)
class Sending:
    """What the pool knows of a request that connects.

    `passage` is its leave to be sent, if it needs any. The pool notes in `carrier` what its connection is made of:
    a socket, or TLS.
    """

    passage: Passage | None = None
    carrier: Any = None


@implementer(IHandshakeListener)
class Connection(protocol.Protocol):
    """A connection to a site, for one request at a time.

    `was_idle`: it has been in the pool, by `key`, where a site may close it at any time. `carrier` is what it is
    made of: a socket, or TLS. `ip` and `certificate` are the site's.
    """

    transport: Any
    carrier: Any = None
    ip: IPv4Address | IPv6Address | None = None
    certificate: Certificate | None = None
    was_idle = is_open = False
    _answer: Answer | None = None

    def __init__(self, pool: Pool, key: Hashable) -> None:
        self.key = key
        self._pool = pool
        self._ready: asyncio.Future[None] | None = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[None] | None = None

    # How it is made

    def connectionMade(self) -> None:  # noqa: N802 - Twisted's name
        """Be ready, unless TLS comes first: what is written before it is whole would be kept until then."""
        transport = self.transport
        if ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(True)
        self.carrier = transport.getHandle()  # now: a transport that has lost its socket has none
        self.ip = ip_address(transport.getPeer().host)
        if not isinstance(transport, TLSMemoryBIOProtocol):
            self._be_ready()

    def handshakeCompleted(self) -> None:  # noqa: N802 - Twisted's name
        """Be ready, unless the certificate was refused: then `connectionLost` says why."""
        transport = self.transport
        if not transport.disconnecting:
            if (certificate := transport.getPeerCertificate()) is not None:
                self.certificate = Certificate(certificate)
            self._be_ready()

    def _be_ready(self) -> None:
        self.is_open = True
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    async def ready(self) -> None:
        """Wait until what is written goes out at once.

        Raises:
            DownloadFailedError: the site has closed it before.

        """
        assert self._ready is not None
        try:
            await self._ready
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            self._ready = None  # its exception has a traceback, which leads back here

    # A request and its response

    async def exchange(self, request: bytes, answer: Answer) -> None:
        """Send a request, which is on the wire when this waits, and read the answer.

        Raises:
            BadResponse: it cannot be read, or exceeds a bound (net/http1.py).
            DownloadFailedError: the connection was lost before the head was whole.
            ResponseDataLossError: it was lost before the body was.
            StaleConnection: the site had closed it while it was idle.

        """
        self._answer = answer
        ended = self._ended = asyncio.get_running_loop().create_future()
        transport = self.transport
        socket: Any = transport.transport if isinstance(transport, BufferingTLSTransport) else transport
        socket.startWriting = int  # not yet: a call without effect
        try:
            transport.write(request)
            if socket is not transport:
                transport._aggregator.flush()
        finally:
            del socket.startWriting
        _write_now(socket)
        try:
            await ended
        finally:
            if self._answer is answer:  # given up; else the connection may have the next request
                self.abort()
            if self._ended is ended:
                self._ended = None
            del ended  # its exception has a traceback, which leads back here

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        """Have what has come read, all TLS records of it at once: Twisted delivers each by itself."""
        answer = self._answer
        if answer is None:
            self.abort()  # unsolicited bytes
            return
        records = 0
        if isinstance(self.transport, TLSMemoryBIOProtocol):
            records, parts = 1, [data]
            with suppress(SSL.Error):  # there are no more; or the transport meets the error, too
                while True:
                    parts.append(self.transport.getHandle().recv(_LONGEST_RECORD))
                    records += 1
            data = b"".join(parts)
        answer.framing += _READ + _RECORD * records
        try:
            is_enough = answer.read(data)
        except Exception as error:  # what a site sends may be anything
            self._end(error)
        else:
            if is_enough or answer.is_whole:
                self._end(None, keep=not is_enough)

    def _end(self, error: BaseException | None, *, keep: bool = False) -> None:
        """End the exchange; keep the connection if it may carry another one."""
        answer, self._answer = self._answer, None
        assert answer is not None
        if keep and answer.keeps_open and self.is_open:
            self._pool.keep(self)
        else:
            self.close()
        if self._ended is None or self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)

    # How it ends

    def close(self) -> None:
        """Close it, without waiting for a site that does not close its end of TLS, but sends on."""
        self.is_open = False
        transport = self.transport
        transport.loseConnection()
        if isinstance(transport, TLSMemoryBIOProtocol):
            socket: Any = transport.transport
            socket.loseConnection()

    def abort(self) -> None:
        """Close it at once."""
        self.is_open, self._answer = False, None
        if self._ready is not None:
            self._ready.cancel()
        self._pool.forget(self)
        if self.transport is not None:
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: N802 - Twisted's name
        """End whatever waits."""
        self.is_open = False
        self._pool.forget(self)
        fault = reason.value or ConnectionLost()
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(_failed(fault))
        answer, self._answer = self._answer, None
        if answer is None or self._ended is None or self._ended.done():
            return
        if answer.needs_more:
            stale = self.was_idle and not answer.has_bytes and isinstance(fault, (ConnectionDone, ConnectionLost))
            error: Exception = _failed(fault)
            if stale:
                error = StaleConnection("the site had closed the connection")
            elif answer.head:
                error = ResponseDataLossError(str(fault))
            self._ended.set_exception(error)
        else:
            answer.is_cut = True
            self._ended.set_result(None)


def _failed(fault: BaseException) -> DownloadFailedError:
    error = DownloadFailedError(str(fault))
    error.__cause__ = fault
    return error


def _write_now(socket: Any) -> None:
    """Have a socket take what was just written.

    Twisted would do so in the reactor's next round, or with TLS in the one after it: on a busy worker that is
    when the request's send slot has passed, and the next one comes.
    """
    if not isinstance(socket, FileDescriptor) or not socket.connected:
        return
    if socket.disconnecting or socket.doWrite() is not None or socket.dataBuffer:
        socket.startWriting()  # an error shows again in the reactor's round


class _Factory(protocol.Factory):
    noisy = False

    def __init__(self, pool: Pool, key: Hashable) -> None:
        self._pool, self._key = pool, key
        self.made: list[Connection] = []

    def buildProtocol(self, addr: Any) -> Connection:  # noqa: N802 - Twisted's name
        self.made.append(Connection(self._pool, self._key))
        return self.made[-1]


class Pool:
    """The connections that are kept, by their keys, with a bound on them all; the longest idle is closed first.

    It is the last to hold a request back: one whose slot passes while its connection is made takes another slot,
    here if there is one soon, else by way of the frontier. Its connection is kept for the next request.
    """

    def __init__(self) -> None:
        self._idle: dict[Hashable, list[Connection]] = {}  # the last one was used last
        self._until: dict[Connection, asyncio.TimerHandle] = {}  # in the order in which they became idle

    async def connection(self, key: Hashable, endpoint: Any, sending: Sending) -> Connection:
        """Return an idle connection, or a new one; the request has to be written to it at once.

        Raises:
            SlotMissed: that would be too late: the request was delayed on its way here from the gate, on an
                overloaded machine, or the connection took too long.
            ConnectionLost: the site has closed the connection meanwhile.
            Exception: as the endpoint's `connect`.

        """
        leave = sending.passage
        if leave is not None and not leave.is_open:
            raise SlotMissedHere("the slot was missed on the way from the gate")
        if idle := self._idle.get(key):
            connection = idle[-1]
            self.forget(connection)
        else:
            connection = await self._connected(key, endpoint)
        sending.carrier = connection.carrier  # also of a handshake that fails
        if not connection.was_idle:
            await connection.ready()
        while leave is not None and not leave.is_open and connection.is_open:
            await self._renew(connection, leave)
        if not connection.is_open:  # nothing would end an exchange over it
            raise ConnectionLost("the site closed the connection before it got a request")
        return connection

    async def _connected(self, key: Hashable, endpoint: Any) -> Connection:
        factory = _Factory(self, key)
        try:
            connection: Connection = await maybe_deferred_to_future(endpoint.connect(factory))
        except asyncio.CancelledError:
            for made in factory.made:  # in the same turn of the loop
                made.abort()
            raise
        return connection

    async def _renew(self, connection: Connection, leave: Passage) -> None:
        """Return when the request has another slot, and that has come.

        Raises:
            SlotMissed: it may not, or not soon.

        """
        admitted = False
        try:
            admitted = await leave.renew()
        finally:  # also where the request is aborted
            if not admitted and connection.is_open:
                self.keep(connection)
        if not admitted and connection.is_open:
            raise SlotMissed("the slot was missed while the connection was made")

    def keep(self, connection: Connection) -> None:
        """Keep an open connection for the next request to its site."""
        connection.was_idle = True
        of_site = self._idle.setdefault(connection.key, [])
        of_site.append(connection)
        self._until[connection] = asyncio.get_running_loop().call_later(_IDLE_S, self._drop, connection)
        if len(of_site) > _MAX_IDLE_A_HOST:
            self._drop(of_site[0])
        while len(self._until) > _MAX_IDLE:
            self._drop(next(iter(self._until)))

    def _drop(self, connection: Connection) -> None:
        self.forget(connection)
        connection.close()

    def forget(self, connection: Connection) -> None:
        """Keep a connection no longer, if it is idle."""
        if (timer := self._until.pop(connection, None)) is None:
            return
        timer.cancel()
        of_site = self._idle[connection.key]
        of_site.remove(connection)
        if not of_site:
            del self._idle[connection.key]

    def close(self) -> None:
        """Close all idle connections."""
        for connection in list(self._until):
            self._drop(connection)


def fit_open_files(concurrent: int) -> int:
    """Return how many requests a worker may have in flight, at most `concurrent`, without running out of files.

    Raises the soft limit of open files to what that takes. A host with several addresses may be tried at two of
    them at a time.

    Raises:
        ConfigError: the hard limit (`ulimit -Hn`) is too low for any, or `concurrent` is.

    """
    if concurrent < _LEAST_CONCURRENT:
        raise ConfigError(f"CONCURRENT_REQUESTS={concurrent} must be {_LEAST_CONCURRENT} or more")
    besides = 2 * _MAX_IDLE + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        concurrent = min(concurrent, (hard - besides) // 2)
    needed = 2 * concurrent + besides
    if concurrent < _LEAST_CONCURRENT:
        raise ConfigError(
            f"ulimit -n is {hard}: a worker needs {2 * _LEAST_CONCURRENT + besides} open files at least; raise "
            "the limit (ulimit -Hn, LimitNOFILE of systemd)"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return concurrent
