"""When a request is written to its connection, it is on the wire: nothing that this process does delays it."""

# mypy: disable-error-code="no-untyped-call"
# Twisted's client has no types.

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import trustme
from OpenSSL import SSL
from scrapy.core.downloader.handlers.http11 import _RequestBodyProducer
from twisted.internet import reactor, tcp
from twisted.internet._sslverify import optionsForClientTLS
from twisted.internet.address import IPv4Address
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.ssl import Certificate, trustRootFromCertificates
from twisted.internet.testing import StringTransport
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from twisted.web import _newclient
from twisted.web.http_headers import Headers

from crawlproject.net.connections import (
    MAX_FRAMING,
    BoundedPool,
    BoundedProtocol,
    FramingTooLarge,
    HeadersTooLarge,
    Heads,
)
from tests.waiting import PATIENCE_S

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Both ends of a connection: ours and the site's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        site, _ = server.accept()
    with ours, site:
        ours.setblocking(False)
        site.settimeout(PATIENCE_S)
        yield ours, site


@pytest.fixture(autouse=True)
def left_reactor(pair: Pair) -> Iterator[None]:
    """Have the reactor, which does not run, forget these sockets while they are open."""
    yield
    some: Any = reactor
    some.removeAll()


def connected(ours: socket.socket, protocol: Any) -> tcp.Connection:
    """Return the transport of a socket that is connected, for a reactor that does not run."""
    connection = tcp.Connection(ours, protocol, reactor)
    connection.connected = 1
    connection.getPeer = lambda: IPv4Address("TCP", "127.0.0.1", 80)  # type: ignore[method-assign]
    return connection


def get() -> Any:
    return _newclient.Request(b"GET", b"/a.jpg", Headers({b"Host": [b"museum.org"]}), None, persistent=True)


def secured(
    ours: socket.socket, site: socket.socket, protocol: BoundedProtocol
) -> tuple[tcp.Connection, ssl.SSLSocket]:
    """Return both ends of a connection after TLS's handshake."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("museum.org").configure_cert(context)
    sides: list[ssl.SSLSocket] = []
    thread = threading.Thread(target=lambda: sides.append(context.wrap_socket(site, server_side=True)))
    thread.start()
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
    connection.doWrite()
    thread.join(PATIENCE_S)
    assert isinstance(tls.getHandle(), SSL.Connection)
    return connection, sides[0]


@pytest.mark.parametrize("tls", [False, True])
def test_a_request_is_sent_before_the_reactor_goes_on(pair: Pair, tls: bool) -> None:
    ours, site = pair
    protocol = BoundedProtocol(lambda _: None)
    if tls:
        _, site = secured(ours, site, protocol)
    else:
        protocol.makeConnection(connected(ours, protocol))
    protocol.request(get())  # the reactor does not run
    assert site.recv(1000).startswith(b"GET /a.jpg HTTP/1.1\r\n")


def test_what_the_socket_does_not_take_is_left_to_the_reactor(pair: Pair) -> None:
    ours, _ = pair
    with suppress(BlockingIOError):
        while ours.send(bytes(65536)):
            pass
    protocol = BoundedProtocol(lambda _: None)
    connection = connected(ours, protocol)
    protocol.makeConnection(connection)
    protocol.request(get())
    some: Any = reactor
    assert connection in some.getWriters()


class Reader(Protocol):
    """Reads a response, as Scrapy's handler does; breaks off with its first piece if it `stops`."""

    def __init__(self, stops: bool) -> None:
        self.stops = stops
        self.read = b""
        self.pieces = 0
        self.ended: Failure | None = None

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: N802 - Twisted's name
        self.ended = reason

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        self.pieces += 1
        self.read += data
        if self.stops:
            transport: Any = self.transport
            transport.stopProducing()
            transport.loseConnection()


@pytest.mark.parametrize("stops", [False, True])
def test_a_connection_that_was_broken_off_with_the_end_of_a_response_is_not_used_again(
    pair: Pair, stops: bool
) -> None:
    ours, site = pair
    pool = BoundedPool(reactor)
    protocol = BoundedProtocol(lambda one: pool._putConnection("museum.org", one))
    connection = connected(ours, protocol)
    protocol.makeConnection(connection)
    connection.startReading()
    reader = Reader(stops)
    protocol.request(get()).addCallback(lambda response: response.deliverBody(reader))
    site.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")
    connection.doRead()
    assert reader.read == b"abc"
    assert pool._connections.get("museum.org", []) == ([] if stops else [protocol])
    for timeout in pool._timeouts.values():
        timeout.cancel()


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
WIRE = 3_000_000  # bytes of each answer
ONE_BYTE = b"1\r\nx\r\n"


def fetch(pair: Pair, answer: Iterable[bytes], tls: bool = False) -> tuple[Reader, Failure | None]:
    """Read an answer, each part of it sent by itself; return what was read, and an error."""
    ours, site = pair
    protocol = BoundedProtocol(lambda _: None)
    if tls:
        connection, site = secured(ours, site, protocol)
        ours.setblocking(False)
    else:
        connection = connected(ours, protocol)
        protocol.makeConnection(connection)
    connection.startReading()
    reader, errors = Reader(stops=False), list[Failure]()

    def serve() -> None:
        site.settimeout(PATIENCE_S)
        with suppress(OSError):
            site.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for part in answer:
                site.sendall(part)

    requested = protocol.request(get())
    requested.addCallbacks(lambda response: response.deliverBody(reader), errors.append)
    thread = threading.Thread(target=serve)
    thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while reader.ended is None and not errors and time.monotonic() < deadline:
        select.select([ours], [], [], 0.1)
        connection.doRead()
    ours.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE_S)
    return reader, errors[0] if errors else None


def cut(data: bytes, size: int = 1) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


BODY = b"x" * (WIRE // 23)
# What a site sends, in records of TLS if it says so, and how that ends
FRAMING: dict[str, tuple[Callable[[], Iterable[bytes]], type[Exception]]] = {
    "chunks of a byte": (lambda: [CHUNKED, ONE_BYTE * (WIRE // 6)], FramingTooLarge),
    "chunks of a byte by tls": (lambda: [CHUNKED, ONE_BYTE * (WIRE // 6)], FramingTooLarge),
    "extensions": (lambda: [CHUNKED, b"5;%b\r\nabcde\r\n" % (b"a" * 1000) * (WIRE // 1010)], FramingTooLarge),
    "trailers": (lambda: [CHUNKED, b"0\r\n", b"X: a\r\n" * (WIRE // 6)], Exception),  # Twisted's, or ours
    "tls records of a byte": (lambda: [HEAD + b"Content-Length: 99999\r\n\r\n", *cut(BODY)], FramingTooLarge),
    "header lines": (lambda: [HEAD, b"a:\n" * (WIRE // 3)], HeadersTooLarge),
    "interim responses": (lambda: [b"HTTP/1.1 100 \n\n" * (WIRE // 15)], HeadersTooLarge),
}


@pytest.mark.parametrize("name", FRAMING)
def test_an_answer_of_little_else_than_framing_fails_before_its_end(pair: Pair, name: str) -> None:
    answer, error = FRAMING[name]
    reader, failure = fetch(pair, answer(), "tls" in name)
    failure = failure or reader.ended
    assert failure is not None
    reasons: list[Failure] = getattr(failure.value, "reasons", [])
    assert reasons, failure
    assert reasons[0].check(error), reasons
    assert len(reader.read) < MAX_FRAMING


@pytest.mark.parametrize("tls", [False, True])
def test_small_chunks_come_in_few_pieces(pair: Pair, tls: bool) -> None:
    count = WIRE // 56
    reader, failure = fetch(pair, [CHUNKED, (b"32\r\n" + b"x" * 50 + b"\r\n") * count + b"0\r\n\r\n"], tls)
    assert failure is None
    assert reader.ended is not None
    assert reader.ended.check(_newclient.ResponseDone)
    assert len(reader.read) == 50 * count
    assert reader.pieces < count / 100


def test_a_site_that_keeps_tls_open_behind_its_answer_does_not_keep_the_connection(pair: Pair) -> None:
    protocol = BoundedProtocol(lambda _: None)
    connection, site = secured(*pair, protocol)
    reader = Reader(stops=False)
    protocol.request(get()).addCallback(lambda response: response.deliverBody(reader))
    site.sendall(HEAD + b"Connection: close\r\nContent-Length: 3\r\n\r\nabc")
    while reader.ended is None:
        connection.doRead()
    assert reader.read == b"abc"
    assert connection.disconnecting


# Heads as they went over the wire


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
def test_a_requests_head_is_what_the_site_receives(pair: Pair, method: bytes, body: bytes | None) -> None:
    ours, site = pair
    protocol = BoundedProtocol(lambda _: None)
    asked(protocol, connected(ours, protocol), method, body)
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


ODD_HEAD = b"HTTP/1.1 200 Tr\xe8s bien\r\nx-odd:1\r\nX-Odd: 2\r\nContent-Length: 9\r\n\r\n"


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"], ids=["", "interim"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_responses_head_is_what_the_site_sent(before: bytes, size: int) -> None:
    protocol = asked(BoundedProtocol(lambda _: None), StringTransport())
    data = before + ODD_HEAD + b"\r\n\r\nbody\n"
    for start in range(0, len(data), size):
        protocol.dataReceived(data[start : start + size])
    assert protocol.heads
    assert protocol.heads.response == ODD_HEAD


def test_a_head_with_bare_line_feeds_ends_where_it_ends() -> None:
    protocol = asked(BoundedProtocol(lambda _: None), StringTransport())
    protocol.dataReceived(b"HTTP/1.0 200 OK\nA: 1\n\nB: 2\r\n\r\n")
    assert protocol.heads
    assert protocol.heads.response == b"HTTP/1.0 200 OK\nA: 1\n\n"
