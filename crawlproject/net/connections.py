"""Connections to sites: kept open for a short time, few, and with bounds on what a response may cost.

`DOWNLOAD_MAXSIZE` bounds the bytes of bodies only: endless headers would fill the memory until `DOWNLOAD_TIMEOUT`,
and a body in chunks, TLS records or packets of one byte would take a thousand times the CPU.
"""

# mypy: disable-error-code="no-untyped-call,no-untyped-def"
# Twisted's client has no types.

from __future__ import annotations

import re
import resource
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from OpenSSL import SSL
from scrapy.core.downloader.handlers.http11 import (
    _LenientHTTP11ClientFactory,
    _LenientHTTP11ClientProtocol,
    _LenientHTTPClientParser,
)
from scrapy.utils.defer import deferred_from_coro
from twisted.internet import defer
from twisted.internet.abstract import FileDescriptor
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IAddress, IHandshakeListener
from twisted.internet.protocol import connectionDone
from twisted.protocols.tls import BufferingTLSTransport, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from twisted.web import _newclient
from twisted.web.client import HTTPConnectionPool
from twisted.web.http import _ChunkedTransferDecoder, _IdentityTransferDecoder
from zope.interface import implementer

from crawlproject.errors import ConfigError, SlotMissed, SlotMissedHere, StaleConnection
from crawlproject.net.send_slot import Passage

_IDLE_S = 15.0  # how long an unused connection is kept; Twisted's 240 would keep those of thousands of hosts
_MAX_IDLE = 128  # unused connections of all hosts together, for each of http and https
_MAX_IDLE_A_HOST = 64
_LEAST_CONCURRENT = 16
_OTHER_FILES = 256  # Redis, the storage, the log, name servers, pictures being decoded

MAX_HEADERS = 262_144  # bytes, as in Chrome; including the status line and all interim responses
_LINE = 128  # bytes that a header line counts for besides its own: some 2,000 lines, as in Node.js
_STATUS_LINE = 1024  # and a status line: some 200 interim responses

MAX_FRAMING = 65_536  # bytes of framing that a body may have besides a quarter of its own
# Bytes of framing, at least: the headers of TCP and IP for a read; header, type and tag of a TLS record
_READ, _RECORD = 40, 22
_LONGEST_RECORD = 16_384
_CHUNK = re.compile(rb"(0{0,7}[1-9a-fA-F][0-9a-fA-F]{0,7})\r\n")  # its size, without extensions, which are rare

# Of the heads that are kept
_END = re.compile(rb"\n\r?\n")
_INTERIM = re.compile(rb"HTTP/\d+\.\d+ 1\d\d\b")


class HeadersTooLarge(Exception):
    """Response headers beyond `MAX_HEADERS`."""


class FramingTooLarge(Exception):
    """A response of little else than framing: chunk sizes, extensions, trailers, TLS records, packets."""


class Chunks(_ChunkedTransferDecoder):
    """Twisted's decoder, which takes four times as long for chunks of a few bytes, and gets those not whole."""

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        """Hand over the chunks that are whole, then whatever else there is."""
        if self.state in {"BODY", "CRLF"}:
            left = 2 - len(self._buffer) + (self.length if self.state == "BODY" else 0)
            super().dataReceived(data[:left])
            data = data[left:]
        if self.state == "CHUNK_LENGTH":
            data = bytes(self._buffer) + data
            self._buffer.clear()
            self._start = at = 0
            while size := _CHUNK.match(data, at):
                end = size.end() + int(size[1], 16)
                if data[end : end + 2] != b"\r\n":
                    break
                self.dataCallback(data[size.end() : end])
                at = end + 2
            data = data[at:]
        if data:
            super().dataReceived(data)


class BoundedParser(_LenientHTTPClientParser):
    """Reads a response within the bounds, and delivers what one read brings of its body at once.

    `framing` counts bytes of framing, less a quarter of the body.
    """

    _transferDecoders = {b"chunked": Chunks}  # noqa: N815, RUF012 - Twisted's name
    framing = 0
    _headers = 0

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        """Read on, unless there is too much framing."""
        super().dataReceived(data)
        if self.framing > MAX_FRAMING and self.state != _newclient.DONE:
            if self.bodyDecoder is not None:  # of a body without a length, the end is lost, too
                self.bodyDecoder = _IdentityTransferDecoder(1, None, None)
            raise FramingTooLarge(f"framing of more than a quarter of the body and {MAX_FRAMING} bytes")

    def lineReceived(self, line: bytes) -> None:  # noqa: N802 - Twisted's name
        """Count a line of the headers."""
        self._headers += len(line) + (_STATUS_LINE if self.state == _newclient.STATUS else _LINE)
        if self._headers > MAX_HEADERS:
            raise HeadersTooLarge(f"response headers of more than {MAX_HEADERS} bytes, or too many lines")
        super().lineReceived(line)

    def switchToBodyMode(self, decoder) -> None:  # noqa: N802 - Twisted's name
        """Collect what the decoder finds."""
        self._parts: list[bytes] = []
        self._deliver, decoder.dataCallback = decoder.dataCallback, self._parts.append
        self._finish, decoder.finishCallback = decoder.finishCallback, self._finish_body
        super().switchToBodyMode(decoder)

    def rawDataReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        """Deliver what there is of the body in `data`."""
        self.framing += len(data)
        try:
            super().rawDataReceived(data)
        finally:
            self._deliver_parts()

    def _finish_body(self, rest: bytes) -> None:
        self._deliver_parts()
        self._finish(rest)

    def _deliver_parts(self) -> None:
        if self._parts:
            body = b"".join(self._parts)
            self._parts.clear()
            self.framing -= len(body) + len(body) // 4
            self._deliver(body)


class Heads:
    """The heads of one request and its response, each with its empty line; b"" while there is none.

    They are as they went over the wire: Scrapy's headers have lost their spelling and their order.
    `ip` is the address that the request was sent to.
    """

    def __init__(self) -> None:
        self.request = b""
        self.ip = ""
        self.received: list[bytes] = []  # all that came until the response's head was whole

    def sent(self, request: Any, transport: Any) -> None:
        """Note the head of a request of Twisted, and where it goes."""
        written = _Written()
        producer, length = request.bodyProducer, None
        if producer is not None:
            length = b"Content-Length: %d\r\n" % producer.length
        elif request.method in {b"PUT", b"POST"}:
            length = b"Content-Length: 0\r\n"
        request._writeHeaders(written, length)
        self.request = b"".join(written)
        self.ip = transport.getPeer().host

    @property
    def response(self) -> bytes:
        """The head of the response; those of interim ones (1xx) are left out."""
        received = b"".join(self.received)
        while end := _END.search(received):
            if not _INTERIM.match(received):
                return received[: end.end()]
            received = received[end.end() :]
        return b""


class _Written(list[bytes]):
    """A transport that keeps what is written to it."""

    def writeSequence(self, lines: list[bytes]) -> None:  # noqa: N802 - Twisted's name
        self.extend(lines)


@implementer(IHandshakeListener)
class BoundedProtocol(_LenientHTTP11ClientProtocol):
    """A connection that is closed when a response's headers are too large.

    `was_idle`: it has been in the pool, by `key`, where a site may close it at any time. `heads`: where those of
    the next request and its response go, if they are wanted.
    """

    was_idle = False
    key: Any = None
    heads: Heads | None = None
    _secured = False
    _handshake: Deferred[BoundedProtocol] | None = None

    def when_ready(self):
        """Return this connection when what is written to it goes out at once: with TLS, after the handshake.

        Twisted calls a connection made when TCP is, and keeps what is written until the handshake is done.
        """
        if self._secured or not isinstance(self.transport, TLSMemoryBIOProtocol):
            return self
        self._handshake = Deferred(self._abort_handshake)
        return self._handshake

    def handshakeCompleted(self) -> None:  # noqa: N802 - Twisted's name
        """Hand this connection over, unless its certificate was refused: then `connectionLost` says why."""
        if getattr(self.transport, "disconnecting", False):
            return
        self._secured = True
        if handshake := self._take_handshake():
            handshake.callback(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: N802 - Twisted's name
        """Fail whoever waits for the handshake, as Twisted fails a request that had been written."""
        super().connectionLost(reason)
        if handshake := self._take_handshake():
            handshake.errback(Failure(_newclient.ResponseNeverReceived([reason])))

    def _take_handshake(self):
        handshake, self._handshake = self._handshake, None
        return handshake

    def _abort_handshake(self, _) -> None:
        self._handshake = None
        if self.transport is not None:
            self.transport.abortConnection()

    def request(self, request):
        """Send a request."""
        if self.heads is not None:
            self.heads.sent(request, self.transport)
        transport: Any = self.transport
        socket: Any = transport.transport if isinstance(transport, BufferingTLSTransport) else transport
        socket.startWriting = int  # not yet: a call without effect
        try:
            sent = super().request(request)
            if self._parser is not None:
                self._parser.__class__ = (
                    BoundedParser  # as Scrapy does: Twisted names the class in the middle of a method
                )
            if socket is not transport:
                transport._aggregator.flush()
        finally:
            del socket.startWriting
        _write_now(socket)
        return sent.addErrback(_never_answered) if self.was_idle else sent

    def dataReceived(self, bytes: bytes) -> None:  # noqa: N802, A002 - Twisted's names
        """Count a read, and join the TLS records that it brings: Twisted delivers each by itself."""
        records = []
        if isinstance(self.transport, TLSMemoryBIOProtocol):
            records.append(bytes)
            with suppress(SSL.Error):  # there are no more; or the transport meets the error, too
                while True:
                    records.append(self.transport.getHandle().recv(_LONGEST_RECORD))
            bytes = b"".join(records)  # noqa: A001
        if isinstance(self._parser, BoundedParser):
            self._parser.framing += _READ + _RECORD * len(records)
            if self.heads is not None and self._parser.state in {_newclient.STATUS, _newclient.HEADER}:
                self.heads.received.append(bytes)
        super().dataReceived(bytes)

    def _giveUp(self, reason: Failure) -> None:  # noqa: N802 - Twisted's name
        """Close the connection without waiting for a site that does not close its end of TLS, but sends on."""
        super()._giveUp(reason)
        if isinstance(self.transport, TLSMemoryBIOProtocol):
            self.transport.transport.loseConnection()


def _write_now(socket: Any) -> None:
    """Have a socket take what was just written.

    Twisted would do so in the reactor's next round, or with TLS in the one after it: on a busy worker that is
    when the request's send slot has passed, and the next one comes.
    """
    if not isinstance(socket, FileDescriptor) or not socket.connected:
        return
    if socket.disconnecting or socket.doWrite() is not None or socket.dataBuffer:
        socket.startWriting()  # an error shows again in the reactor's round


def _never_answered(failure: Failure) -> Failure:
    """Tell a kept-open connection that the site has closed meanwhile from other failures.

    Twisted's pool would send the request again on its own, without a send slot.
    """
    if failure.check(_newclient.ResponseNeverReceived, _newclient.RequestTransmissionFailed):
        reasons = failure.value.reasons  # type: ignore[union-attr]
        if all(reason.check(ConnectionDone, ConnectionLost) for reason in reasons):
            raise StaleConnection("the site had closed the connection")
    return failure


class BoundedFactory(_LenientHTTP11ClientFactory):
    """Makes `BoundedProtocol` connections for the pool."""

    def buildProtocol(self, addr: IAddress | None) -> BoundedProtocol:  # noqa: N802, D102 - Twisted's name
        return BoundedProtocol(self._quiescentCallback)


@dataclass(slots=True)
class Sending:
    """What the pool knows of the request that connects.

    `passage` is its leave to be sent, if it needs any; its heads go to `heads`, if they are wanted. The pool notes
    in `carrier` what its connection is made of: a socket, or TLS.
    """

    passage: Passage | None = None
    heads: Heads | None = None
    carrier: Any = None


sending: ContextVar[Sending] = ContextVar("sending")


class BoundedPool(HTTPConnectionPool):
    """Twisted's pool with a bound on all idle connections together; the longest idle is closed first.

    It is the last to hold a request back: one whose slot passes while its connection is made takes another slot,
    here if there is one soon, else by way of the frontier. Its connection is kept for the next request.
    """

    def __init__(self, reactor: Any) -> None:
        super().__init__(reactor, persistent=True)
        self.maxPersistentPerHost = _MAX_IDLE_A_HOST
        self.retryAutomatically = False  # without a send slot: see StaleConnection
        self._factory = BoundedFactory
        self.cachedConnectionTimeout = _IDLE_S  # type: ignore[assignment]

    def getConnection(self, key: Any, endpoint: Any) -> Any:  # noqa: N802
        """Return an idle connection, or a new one; the request is written to it at once.

        Fails as SlotMissed when that would be too late: the request was delayed on its way here from the gate, on
        an overloaded machine, or the connection took too long.
        """
        told = sending.get(None) or Sending()
        if told.passage is not None and not told.passage.is_open:
            return defer.fail(SlotMissedHere("the slot was missed on the way from the gate"))
        got = super().getConnection(key, endpoint)
        self._forget(key)
        return got.addCallback(self._admit, key, told)

    def _newConnection(self, key: Any, endpoint: Any) -> Any:  # noqa: N802
        made: Any = super()._newConnection(key, endpoint)
        return made.addCallback(self._secure, sending.get(None) or Sending())

    @staticmethod
    def _secure(connection: Any, told: Sending) -> Any:
        told.carrier = connection.transport.getHandle()  # also of a handshake that fails
        return connection.when_ready()

    def _admit(self, connection: Any, key: Any, told: Sending) -> Any:
        connection.heads, told.carrier = told.heads, connection.transport.getHandle()
        leave = told.passage
        if leave is None or leave.is_open:
            if leave is not None:
                leave.use()
            return connection
        renewed = deferred_from_coro(self._renewed(connection, key, leave))
        return renewed.addCallback(self._admit, key, told)  # the reactor has been round meanwhile

    async def _renewed(self, connection: Any, key: Any, leave: Passage) -> Any:
        """Return the connection when its request has another slot, and that has come.

        Raises:
            SlotMissed: it may not, or not soon.
            ConnectionLost: the site has closed the connection meanwhile.

        """
        admitted = False
        try:
            admitted = await leave.renew()
        finally:  # also where the request is aborted
            if not admitted and connection.state == "QUIESCENT":
                self._putConnection(key, connection)
        if connection.state != "QUIESCENT":
            raise ConnectionLost("the site closed the connection before it got a request")
        if not admitted:
            raise SlotMissed("the slot was missed while the connection was made")
        return connection

    def _putConnection(self, key: Any, connection: Any) -> None:  # noqa: N802
        if getattr(connection.transport, "disconnecting", False):
            return  # broken off with the last piece of its response: what is sent on it would have no answer
        connection.was_idle, connection.key = True, key
        super()._putConnection(key, connection)
        while len(self._timeouts) > _MAX_IDLE:
            oldest: Any = next(iter(self._timeouts))  # in the order in which they became idle
            self._timeouts[oldest].cancel()
            self._removeConnection(oldest.key, oldest)

    def _removeConnection(self, key: Any, connection: Any) -> None:  # noqa: N802
        super()._removeConnection(key, connection)
        self._forget(key)

    def _forget(self, key: Any) -> None:
        """Forget a host without idle connections; Twisted keeps an empty list for every host it ever met."""
        if not self._connections.get(key, True):
            del self._connections[key]


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
