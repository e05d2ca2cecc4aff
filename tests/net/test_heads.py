"""Heads as they went over the wire, by what a real socket received and sent."""

# mypy: disable-error-code="no-untyped-call"
# Twisted's client has no types.

from __future__ import annotations

import socket
from typing import Any, cast

import pytest
from scrapy.core.downloader.handlers.http11 import _RequestBodyProducer
from twisted.internet import reactor, tcp
from twisted.internet.testing import StringTransport
from twisted.web import _newclient
from twisted.web.http_headers import Headers

from crawlproject.net.connections import BoundedProtocol, Heads


class _Connection(tcp.Connection):
    def getPeer(self) -> Any:  # noqa: N802 - Twisted's name
        return type("Address", (), {"host": "127.0.0.1"})


def begun(ours: socket.socket, method: bytes = b"GET", body: bytes | None = None) -> BoundedProtocol:
    """Return a socket's connection whose heads are wanted, with a request under way."""
    protocol = BoundedProtocol(lambda _: None)
    connection: Any = _Connection(ours, cast("Any", protocol), reactor)
    connection.connected = 1
    return asked(protocol, connection, method, body)


def asked(
    protocol: BoundedProtocol, transport: Any, method: bytes = b"GET", body: bytes | None = None
) -> BoundedProtocol:
    protocol.makeConnection(transport)
    protocol.heads = Heads()
    headers = Headers({b"Host": [b"museum.example"], b"x-OWN": [b"1"], b"Accept": [b"*/*"]})
    producer: Any = None if body is None else _RequestBodyProducer(body)
    protocol.request(_newclient.Request(method, b"/a?b=%20", headers, producer, persistent=True))
    return protocol


@pytest.mark.parametrize(
    ("method", "body"), [(b"GET", None), (b"POST", None), (b"POST", b"a=b")], ids=["get", "empty", "body"]
)
def test_a_requests_head_is_what_the_site_receives(
    pair: tuple[socket.socket, socket.socket], method: bytes, body: bytes | None
) -> None:
    ours, site = pair
    protocol = begun(ours, method, body)
    assert protocol.heads
    sent = protocol.heads.request + (body or b"")
    assert sent.startswith(method + b" /a?b=%20 HTTP/1.1\r\n")
    received = b""
    while len(received) < len(sent):
        received += site.recv(len(sent) - len(received))
    assert received == sent
    site.setblocking(False)
    with pytest.raises(BlockingIOError):
        site.recv(1)
    assert protocol.heads.ip == "127.0.0.1"


HEAD = b"HTTP/1.1 200 Tr\xe8s bien\r\nx-odd:1\r\nX-Odd: 2\r\nContent-Length: 9\r\n\r\n"


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"], ids=["", "interim"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_responses_head_is_what_the_site_sent(before: bytes, size: int) -> None:
    protocol = asked(BoundedProtocol(lambda _: None), StringTransport())
    data = before + HEAD + b"\r\n\r\nbody\n"
    for start in range(0, len(data), size):
        protocol.dataReceived(data[start : start + size])
    assert protocol.heads
    assert protocol.heads.response == HEAD


def test_a_head_with_bare_line_feeds_ends_where_it_ends() -> None:
    protocol = asked(BoundedProtocol(lambda _: None), StringTransport())
    protocol.dataReceived(b"HTTP/1.0 200 OK\nA: 1\n\nB: 2\r\n\r\n")
    assert protocol.heads
    assert protocol.heads.response == b"HTTP/1.0 200 OK\nA: 1\n\n"
