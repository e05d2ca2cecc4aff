"""When a request is written to its connection, it is on the wire; and what becomes of connections."""

# mypy: disable-error-code="no-untyped-call"
# Twisted has no types.

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import trustme
from OpenSSL import SSL
from scrapy.exceptions import DownloadFailedError, ResponseDataLossError
from twisted.internet import reactor, tcp
from twisted.internet._sslverify import optionsForClientTLS
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.protocol import Factory
from twisted.internet.ssl import Certificate, trustRootFromCertificates
from twisted.internet.testing import StringTransport
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure

from crawlproject.errors import SlotMissed, SlotMissedHere, StaleConnection
from crawlproject.models import Lease
from crawlproject.net import connections
from crawlproject.net.connections import Connection, Pool, Sending
from crawlproject.net.http1 import Answer, BadResponse, FramingTooLarge
from crawlproject.net.send_slot import Passage
from crawlproject.state.client import State
from tests.net.test_http1 import CHUNKED, HEAD, WIRE, cut
from tests.waiting import PATIENCE_S, until_async

Pair = tuple[socket.socket, socket.socket]
GET = b"GET /a.jpg HTTP/1.1\r\nHost: museum.org\r\n\r\n"
_PEER = IPv4Address("TCP", "192.0.2.1", 80)


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


@pytest.fixture
async def pool() -> Any:
    one = Pool()
    yield one
    one.close()


class Taken(Answer):
    """A response; no more is wanted after its head, or its first piece, if it `stops` there."""

    def __init__(self, stops: str = "") -> None:
        super().__init__("GET")
        self.stops = stops
        self.body = b""
        self.pieces = 0

    def head_came(self) -> bool:
        return self.stops == "head"

    def received(self, piece: bytes) -> bool:
        self.pieces += 1
        self.body += piece
        return self.stops == "piece"


def transport_of(ours: socket.socket, protocol: Any) -> tcp.Connection:
    """Return the transport of a socket that is connected, for a reactor that does not run."""
    transport = tcp.Connection(ours, protocol, reactor)
    transport.connected = 1
    transport.getPeer = lambda: IPv4Address("TCP", "127.0.0.1", 80)  # type: ignore[method-assign]
    return transport


def connected(pool: Pool, ours: socket.socket) -> tuple[Connection, tcp.Connection]:
    connection = Connection(pool, "museum.org")
    transport = transport_of(ours, connection)
    connection.makeConnection(transport)
    return connection, transport


def secured(
    pool: Pool, ours: socket.socket, site: socket.socket
) -> tuple[Connection, tcp.Connection, ssl.SSLSocket]:
    """Return a connection after TLS's handshake, its transport, and the site's end."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("museum.org").configure_cert(context)
    sides: list[ssl.SSLSocket] = []
    thread = threading.Thread(target=lambda: sides.append(context.wrap_socket(site, server_side=True)))
    thread.start()
    trusted = trustRootFromCertificates([Certificate.loadPEM(authority.cert_pem.bytes())])
    connection = Connection(pool, "museum.org")
    wrapped: Any = Factory.forProtocol(lambda: connection)
    tls = TLSMemoryBIOFactory(optionsForClientTLS("museum.org", trusted), True, wrapped, reactor).buildProtocol(
        None
    )
    transport = transport_of(ours, tls)
    tls.makeConnection(transport)
    assert not connection.is_open
    ours.settimeout(PATIENCE_S)
    while not connection.is_open:  # this is what the reactor would do
        transport.doWrite()
        transport.doRead()
    transport.doWrite()
    thread.join(PATIENCE_S)
    ours.setblocking(False)
    assert isinstance(tls.getHandle(), SSL.Connection)
    assert connection.certificate is not None
    return connection, transport, sides[0]


def asked(connection: Connection, reader: Taken, request: bytes = GET) -> asyncio.Task[None]:
    return asyncio.create_task(connection.exchange(request, reader))


def _tell(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


async def read_by(transport: tcp.Connection, task: asyncio.Task[None]) -> None:
    """Read as the reactor would until the exchange ends; raise as it does."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE_S):
        while not task.done():
            if transport.connected:
                readable: asyncio.Future[None] = loop.create_future()
                loop.add_reader(transport.socket, _tell, readable)
                try:
                    await asyncio.wait([readable, task], timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    loop.remove_reader(transport.socket)
                if (why := transport.doRead()) is not None:
                    transport.connectionLost(Failure(why))
            await asyncio.sleep(0)
    await task


@pytest.mark.parametrize("tls", [False, True])
async def test_a_request_is_sent_before_the_reactor_goes_on(pair: Pair, pool: Pool, tls: bool) -> None:
    ours, site = pair
    if tls:
        connection, _, site = secured(pool, ours, site)
    else:
        connection, _ = connected(pool, ours)
    task = asked(connection, Taken())
    await asyncio.sleep(0)  # the task runs, the reactor does not
    assert site.recv(1000) == GET
    task.cancel()
    await asyncio.sleep(0)
    assert not connection.is_open


async def test_what_the_socket_does_not_take_is_left_to_the_reactor(pair: Pair, pool: Pool) -> None:
    ours, _ = pair
    with suppress(BlockingIOError):
        while ours.send(bytes(65536)):
            pass
    connection, transport = connected(pool, ours)
    task = asked(connection, Taken())
    await asyncio.sleep(0)
    some: Any = reactor
    assert transport in some.getWriters()
    task.cancel()


@pytest.mark.parametrize("stops", ["", "head", "piece"])
async def test_a_connection_that_was_broken_off_is_not_used_again(pair: Pair, pool: Pool, stops: str) -> None:
    ours, site = pair
    connection, transport = connected(pool, ours)
    reader = Taken(stops)
    task = asked(connection, reader)
    site.sendall(HEAD + b"Content-Length: 3\r\n\r\nabc")
    await read_by(transport, task)
    assert reader.body == (b"" if stops == "head" else b"abc")
    assert (connection in pool._until, connection.is_open) == ((False, False) if stops else (True, True))


async def test_a_kept_connection_carries_the_next_request(pair: Pair, pool: Pool) -> None:
    ours, site = pair
    connection, transport = connected(pool, ours)
    for body in (b"abc", b"d"):
        reader = Taken()
        task = asked(connection, reader)
        site.sendall(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        await read_by(transport, task)
        assert reader.body == body
        assert await pool.connection("museum.org", None, Sending()) is connection
        assert not pool._idle
        assert not pool._until


@pytest.mark.parametrize("is_idle", [False, True])
async def test_unsolicited_bytes_close_the_connection(pair: Pair, pool: Pool, is_idle: bool) -> None:
    ours, site = pair
    connection, transport = connected(pool, ours)
    if is_idle:
        pool.keep(connection)
    site.sendall(HEAD + b"Content-Length: 0\r\n\r\n")
    ours.setblocking(True)
    transport.doRead()
    assert not connection.is_open
    assert not pool._idle
    assert not pool._until


FRAMING: dict[str, Callable[[], Iterable[bytes]]] = {
    "records of a head": lambda: [HEAD + b"A: ", *cut(b"x" * (WIRE // 23), 1)],
    "chunks": lambda: [CHUNKED, b"1\r\nx\r\n" * (WIRE // 6)],
    "records": lambda: [HEAD + b"Content-Length: 200000\r\n\r\n", *cut(b"x" * (WIRE // 23), 1)],
}


@pytest.mark.parametrize("name", FRAMING)
async def test_an_answer_of_little_else_than_framing_fails_before_its_end(
    pair: Pair, pool: Pool, name: str
) -> None:
    connection, transport, site = secured(pool, *pair)

    def serve() -> None:
        site.settimeout(PATIENCE_S)
        with suppress(OSError):
            site.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for part in FRAMING[name]():
                site.sendall(part)

    reader = Taken()
    task = asked(connection, reader)
    thread = threading.Thread(target=serve)
    thread.start()
    with pytest.raises(FramingTooLarge):
        await read_by(transport, task)
    pair[0].shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE_S)
    assert len(reader.body) < 65_536
    assert reader.pieces < len(reader.body) + 10


async def test_a_site_that_keeps_tls_open_behind_its_answer_does_not_keep_the_connection(
    pair: Pair, pool: Pool
) -> None:
    connection, transport, site = secured(pool, *pair)
    reader = Taken()
    task = asked(connection, reader)
    site.sendall(HEAD + b"Connection: close\r\nContent-Length: 3\r\n\r\nabc")
    await read_by(transport, task)
    assert reader.body == b"abc"
    assert transport.disconnecting


# How a connection ends


class Handle(StringTransport):
    def getHandle(self) -> object:  # noqa: N802 - Twisted's name
        return self


async def memory(pool: Pool) -> tuple[Connection, StringTransport]:
    """Return a connection in memory."""
    connection, transport = Connection(pool, "museum.org"), Handle(peerAddress=_PEER)
    connection.makeConnection(transport)
    await connection.ready()
    return connection, transport


BODY = HEAD + b"Content-Length: 3\r\n\r\na"


@pytest.mark.parametrize(
    ("was_idle", "sent", "error"),
    [
        (True, b"", StaleConnection),
        (False, b"", DownloadFailedError),
        (True, HEAD, DownloadFailedError),
        (False, BODY, ResponseDataLossError),
        (False, CHUNKED + b"1\r\na\r\n", ResponseDataLossError),
        (False, HEAD + b"\r\na", None),  # nothing says where it ends
        (False, b"SSH-2.0\r\n\r\n", BadResponse),
    ],
)
@pytest.mark.parametrize("reason", [ConnectionDone(), ConnectionLost()])
async def test_what_a_lost_connection_means_depends_on_what_was_received(
    pool: Pool, was_idle: bool, sent: bytes, error: type[Exception] | None, reason: Exception
) -> None:
    connection, _ = await memory(pool)
    if was_idle:
        pool.keep(connection)
        assert await pool.connection("museum.org", None, Sending()) is connection
    reader = Taken()
    task = asked(connection, reader)
    await asyncio.sleep(0)
    if sent:
        connection.dataReceived(sent)
    connection.connectionLost(Failure(reason))
    if error is None:
        await task
        assert (reader.body, reader.is_cut) == (b"a", True)
    else:
        with pytest.raises(error) as caught:
            await task
        assert str(reason) in str(caught.value) or error in {StaleConnection, BadResponse}


async def test_an_idle_connection_that_the_site_closes_is_forgotten(pool: Pool) -> None:
    connection, _ = await memory(pool)
    pool.keep(connection)
    connection.connectionLost(Failure(ConnectionDone()))
    assert not pool._idle
    assert not pool._until


async def test_who_gives_a_request_up_when_it_has_ended_leaves_the_connection_to_others(pool: Pool) -> None:
    connection, transport = await memory(pool)
    first = asked(connection, Taken())
    await asyncio.sleep(0)
    connection.dataReceived(HEAD + b"Content-Length: 0\r\n\r\n")
    assert await pool.connection("museum.org", None, Sending()) is connection
    first.cancel()
    second = asked(connection, reader := Taken())
    await asyncio.sleep(0)
    connection.dataReceived(BODY + b"bc")
    await second
    assert reader.body == b"abc"
    assert not transport.disconnecting


class Endpoint:
    """Connects in memory, at once or when it is told to; `made` are the connections."""

    def __init__(self, *, waits: bool = False) -> None:
        self.made: list[Connection] = []
        self.waits: Deferred[Any] | None = Deferred() if waits else None

    def connect(self, factory: Any) -> Any:
        connection = factory.buildProtocol(None)
        self.made.append(connection)
        connection.makeConnection(Handle(peerAddress=_PEER))
        return self.waits or succeed(connection)


async def test_a_connection_that_is_made_when_its_request_is_given_up_is_closed(pool: Pool) -> None:
    endpoint = Endpoint(waits=True)
    task = asyncio.create_task(pool.connection("museum.org", endpoint, Sending()))
    await asyncio.sleep(0)
    assert endpoint.waits is not None
    endpoint.waits.callback(endpoint.made[0])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not endpoint.made[0].is_open


# Idle connections, and slots


async def test_idle_connections_are_bounded_in_total_and_the_oldest_go_first(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_MAX_IDLE", 3)
    monkeypatch.setattr(connections, "_MAX_IDLE_A_HOST", 2)
    idle = []
    for number in range(5):
        connection, _ = await memory(pool)
        connection.key = number
        idle.append(connection)
        pool.keep(connection)
    assert [connection.is_open for connection in idle] == [False, False, True, True, True]
    assert await pool.connection(3, None, Sending()) is idle[3]
    for connection in (idle[3], (await memory(pool))[0]):
        pool.keep(connection)
    assert [connection.is_open for connection in idle[2:]] == [False, True, True]
    assert sorted(map(str, pool._idle)) == ["3", "4", "museum.org"]  # nothing is left of the others
    for _ in range(2):
        pool.keep((await memory(pool))[0])
    assert [len(of_site) for of_site in pool._idle.values()] == [1, 2]  # at most two of one site


async def test_a_connection_is_idle_for_a_short_time(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_IDLE_S", 0.01)
    connection, _ = await memory(pool)
    pool.keep(connection)
    await until_async(lambda: not connection.is_open)
    assert not pool._idle


async def test_an_exchange_that_fails_leaves_nothing_to_the_garbage_collector(pool: Pool) -> None:
    gc.disable()
    try:
        connection, _ = await memory(pool)
        with pytest.raises(DownloadFailedError):
            task = asked(connection, Taken())
            await asyncio.sleep(0)
            connection.connectionLost(Failure(ConnectionLost()))
            await task
        left = weakref.ref(connection)
        connection.transport.protocol = None
        del connection, task, _
        await asyncio.sleep(0)
        assert left() is None
    finally:
        gc.enable()


async def test_a_request_that_comes_too_late_is_not_written(state: State, pool: Pool) -> None:
    now = asyncio.get_running_loop().time()
    late, timely = (Lease("1.0:museum", now, now + more, 0, b"") for more in (-1.0, 60.0))
    endpoint = Endpoint()
    with pytest.raises(SlotMissedHere):
        await pool.connection("museum.org", endpoint, Sending(Passage.of_lease(state, late, "museum.example")))
    assert not endpoint.made
    sending = Sending(Passage.of_lease(state, timely, "museum.example"))
    connection = await pool.connection("museum.org", endpoint, sending)
    assert endpoint.made == [connection]
    assert sending.carrier is connection.carrier


@pytest.mark.parametrize(
    ("renewed", "closed", "error"),
    [(True, False, None), (False, False, SlotMissed), (True, True, ConnectionLost), (False, True, ConnectionLost)],
)
async def test_a_request_whose_slot_passes_while_it_connects_takes_another_or_leaves_its_connection(
    pool: Pool, renewed: bool, closed: bool, error: type[Exception] | None
) -> None:
    class Leave:
        looks = 0

        @property
        def is_open(self) -> bool:
            self.looks += 1
            return self.looks != 2  # not when the connection is there

        async def renew(self) -> bool:
            if closed:
                endpoint.made[0].connectionLost(Failure(ConnectionDone()))
            return renewed

    leave: Any = Leave()
    endpoint = Endpoint()
    getting = pool.connection("museum.org", endpoint, Sending(leave))
    if error is None:
        assert await getting is endpoint.made[0]
    else:
        with pytest.raises(error):
            await getting
    assert [len(of_site) for of_site in pool._idle.values()] == ([1] if error is SlotMissed else [])
