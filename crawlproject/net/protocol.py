"""A connection to a site, with a bound on the size of response headers.

`DOWNLOAD_MAXSIZE` bounds bodies only: endless headers would fill the memory until `DOWNLOAD_TIMEOUT`.
"""

# mypy: disable-error-code="no-untyped-call,no-untyped-def"
# Twisted's client has no types.

from __future__ import annotations

from scrapy.core.downloader.handlers.http11 import (
    _LenientHTTP11ClientFactory,
    _LenientHTTP11ClientProtocol,
)
from twisted.internet.abstract import FileDescriptor
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IAddress, IHandshakeListener
from twisted.internet.protocol import connectionDone
from twisted.protocols.tls import BufferingTLSTransport, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from twisted.web import _newclient
from zope.interface import implementer

from crawlproject.errors import StaleConnection
from crawlproject.net.heads import Heads

MAX_HEADERS = 262_144  # bytes, as in Chrome; including the status line and all interim responses


class HeadersTooLarge(Exception):
    """Response headers beyond `MAX_HEADERS`."""


@implementer(IHandshakeListener)
class BoundedProtocol(_LenientHTTP11ClientProtocol):
    """A connection that is closed when a response's headers are too large.

    `was_idle`: it has been in the pool, where a site may close it at any time. `heads`: where those of the next
    request and its response go, if they are wanted.
    """

    was_idle = False
    heads: Heads | None = None
    _received = 0
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
        """Send a request; the bytes of its response are counted from 0."""
        self._received = 0
        if self.heads is not None:
            self.heads.sent(request, self.transport)
        sent = super().request(request)
        self._flush()
        return sent.addErrback(_never_answered) if self.was_idle else sent

    def _flush(self) -> None:
        """Have the socket take what was just written.

        Twisted would do so in the reactor's next round, or with TLS in the one after it: on a busy worker that is
        when the request's send slot has passed, and the next one comes.
        """
        transport = self.transport
        if isinstance(transport, BufferingTLSTransport):
            transport._aggregator.flush()
            transport = transport.transport
        if isinstance(transport, FileDescriptor) and transport.connected and not transport.disconnecting:
            transport.doWrite()  # an error shows again in the reactor's round

    def dataReceived(self, bytes: bytes) -> None:  # noqa: N802, A002 - Twisted's names
        """Count the bytes before a body."""
        if self._parser is not None and self._parser.state in {_newclient.STATUS, _newclient.HEADER}:
            self._received += len(bytes)
            if self._received > MAX_HEADERS:
                self._giveUp(Failure(HeadersTooLarge(f"response headers of more than {MAX_HEADERS} bytes")))
                return
            if self.heads is not None:
                self.heads.received.append(bytes)
        super().dataReceived(bytes)


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
