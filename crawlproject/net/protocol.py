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
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IAddress
from twisted.python.failure import Failure
from twisted.web import _newclient

from crawlproject.errors import StaleConnection

MAX_HEADERS = 262_144  # bytes, as in Chrome; including the status line and all interim responses


class HeadersTooLarge(Exception):
    """Response headers beyond `MAX_HEADERS`."""


class BoundedProtocol(_LenientHTTP11ClientProtocol):
    """A connection that is closed when a response's headers are too large."""

    _received = 0
    _requests = 0

    def request(self, request):
        """Send a request; the bytes of its response are counted from 0."""
        self._received = 0
        self._requests += 1
        sent = super().request(request)
        return sent.addErrback(_never_answered) if self._requests > 1 else sent

    def dataReceived(self, bytes: bytes) -> None:  # noqa: N802, A002 - Twisted's names
        """Count the bytes before a body."""
        if self._parser is not None and self._parser.state in {_newclient.STATUS, _newclient.HEADER}:
            self._received += len(bytes)
            if self._received > MAX_HEADERS:
                self._giveUp(Failure(HeadersTooLarge(f"response headers of more than {MAX_HEADERS} bytes")))
                return
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
