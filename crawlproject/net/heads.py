"""Heads as they go over the wire: Scrapy's headers have lost their spelling and their order."""

from __future__ import annotations

import re
from typing import Any

_END = re.compile(rb"\n\r?\n")
_INTERIM = re.compile(rb"HTTP/\d+\.\d+ 1\d\d\b")


class Heads:
    """The heads of one request and its response, each with its empty line; b"" while there is none.

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
