"""When a request is written to its connection, it is on the wire: nothing that this process does delays it."""

# mypy: disable-error-code="no-untyped-call"
# Twisted's client has no types.

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import trustme
from OpenSSL import SSL
from twisted.internet import reactor, tcp
from twisted.internet._sslverify import optionsForClientTLS
from twisted.internet.address import IPv4Address
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import Certificate, trustRootFromCertificates
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.web import _newclient
from twisted.web.http_headers import Headers

from crawlproject.net.pool import BoundedPool
from crawlproject.net.protocol import BoundedProtocol
from tests.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def left_reactor(pair: tuple[socket.socket, socket.socket]) -> Iterator[None]:
    """Have the reactor, which does not run, forget these sockets while they are open."""
    yield
    some: Any = reactor
    some.removeAll()


def connected(ours: socket.socket, protocol: Any) -> tcp.Connection:
    connection = tcp.Connection(ours, protocol, reactor)
    connection.connected = 1
    return connection


def get() -> Any:
    return _newclient.Request(b"GET", b"/a.jpg", Headers({b"Host": [b"museum.org"]}), None, persistent=True)


def test_a_request_is_sent_before_the_reactor_goes_on(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, site = pair
    protocol = BoundedProtocol(lambda _: None)
    protocol.makeConnection(connected(ours, protocol))
    protocol.request(get())  # the reactor does not run
    assert site.recv(1000).startswith(b"GET /a.jpg HTTP/1.1\r\n")


def test_a_request_is_sent_before_the_reactor_goes_on_with_tls_too(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, site = pair
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("museum.org").configure_cert(context)
    read: list[bytes] = []

    def serve() -> None:
        with context.wrap_socket(site, server_side=True) as secured:
            read.append(secured.recv(1000))

    thread = threading.Thread(target=serve)
    thread.start()
    protocol = BoundedProtocol(lambda _: None)
    trusted = trustRootFromCertificates([Certificate.loadPEM(authority.cert_pem.bytes())])
    wrapped: Any = Factory.forProtocol(lambda: protocol)
    factory = TLSMemoryBIOFactory(optionsForClientTLS("museum.org", trusted), True, wrapped, reactor)
    tls = factory.buildProtocol(None)
    connection = connected(ours, tls)
    tls.makeConnection(connection)
    ready: list[BoundedProtocol] = []
    protocol.when_ready().addCallback(ready.append)
    ours.settimeout(PATIENCE_S)
    while not ready:  # this is what the reactor would do
        connection.doWrite()
        connection.doRead()
    protocol.request(get())
    thread.join(PATIENCE_S)
    assert read[0].startswith(b"GET /a.jpg HTTP/1.1\r\n")
    assert isinstance(tls.getHandle(), SSL.Connection)


class Reader(Protocol):
    """Reads a response, as Scrapy's handler does; breaks off with its first piece if it `stops`."""

    def __init__(self, stops: bool) -> None:
        self.stops = stops
        self.read = b""

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        self.read += data
        if self.stops:
            transport: Any = self.transport
            transport.stopProducing()
            transport.loseConnection()


@pytest.mark.parametrize("stops", [False, True])
def test_a_connection_that_was_broken_off_with_the_end_of_a_response_is_not_used_again(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, stops: bool
) -> None:
    """The site would answer, and nobody would listen: then it is sent once more."""
    ours, site = pair
    pool = BoundedPool(reactor)
    protocol = BoundedProtocol(lambda one: pool._putConnection("museum.org", one))
    connection = connected(ours, protocol)
    protocol.makeConnection(connection)
    connection.startReading()
    monkeypatch.setattr(connection, "getPeer", lambda: IPv4Address("TCP", "127.0.0.1", 80), raising=False)
    reader = Reader(stops)
    protocol.request(get()).addCallback(lambda response: response.deliverBody(reader))
    site.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")
    connection.doRead()
    assert reader.read == b"abc"
    assert pool._connections.get("museum.org", []) == ([] if stops else [protocol])
    for timeout in pool._timeouts.values():
        timeout.cancel()
