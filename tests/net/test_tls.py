"""Sessions of TLS are resumed, and certificates verified as strictly as without."""

# mypy: disable-error-code="no-untyped-call"
# Twisted has no types.

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
from OpenSSL import SSL
from scrapy.exceptions import DownloadFailedError
from twisted.internet.address import IPv4Address
from twisted.internet.defer import succeed
from twisted.internet.endpoints import wrapClientTLS
from twisted.internet.error import ConnectionLost
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from crawlproject.errors import SlotMissed
from crawlproject.net import tls
from crawlproject.net.connections import Pool, Sending
from crawlproject.net.tls import ContextFactory, Sessions

_AUTHORITY = trustme.CA()
_HOUR = 3600


class Clock:
    """The time of day, some seconds later than it is."""

    later = 0.0

    def __call__(self) -> float:
        return time.time() + self.later


class Site:
    """A server with keys of its own for tickets; `resumed` are its connections that resumed a session."""

    def __init__(self, *names: str, authority: trustme.CA = _AUTHORITY, **of_certificate: Any) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.certify(*names, authority=authority, **of_certificate)
        self.resumed: list[bool] = []

    def certify(self, *names: str, authority: trustme.CA = _AUTHORITY, **of_certificate: Any) -> None:
        authority.issue_cert(*(names or ["museum.org"]), **of_certificate).configure_cert(self.context)

    def accept(self) -> Callable[[bytes], bytes]:
        """Return a connection: it is given what the client sends, and returns what it sends in answer."""
        received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        connection = self.context.wrap_bio(received, sent, server_side=True)

        def answer(data: bytes) -> bytes:
            received.write(data)
            try:
                connection.do_handshake()
            except ssl.SSLError:  # it goes on, or the client does not trust it
                return sent.read()
            self.resumed.append(bool(connection.session_reused))
            connection.write(b"answer")
            return sent.read()

        return answer


def unwritten(connection: SSL.Connection) -> bytes:
    try:
        return connection.bio_read(65536)
    except SSL.WantReadError:
        return b""


def visit(factory: ContextFactory, site: Site, host: bytes = b"museum.org", port: int = 443) -> SSL.Connection:
    """Return a connection to `site` that was answered.

    Raises:
        SSL.Error: the certificate was refused.

    """
    refused: list[Failure] = []
    factory_of = SimpleNamespace(wrappedFactory=None)
    protocol = SimpleNamespace(factory=factory_of, failVerification=refused.append)
    connection: SSL.Connection = factory.creatorForNetloc(host, port).clientConnectionForTLS(protocol)
    connection.set_connect_state()
    answer = site.accept()
    while True:
        try:
            connection.do_handshake()
        except SSL.WantReadError:
            connection.bio_write(answer(unwritten(connection)))
        else:
            break
    if rest := unwritten(connection):
        connection.bio_write(answer(rest))
    assert connection.recv(100) == b"answer"
    return connection


def answered(factory: ContextFactory, site: Site, host: bytes = b"museum.org", port: int = 443) -> str | None:
    """Visit a site once, as the handler does; return the fault of its certificate."""
    return factory.answered(visit(factory, site, host, port))


@pytest.fixture
def clock() -> Clock:
    return Clock()


def made(clock: Clock) -> ContextFactory:
    factory = ContextFactory(verify_certificates=True)
    factory.sessions = Sessions(clock)
    return factory


@pytest.fixture
def factory(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContextFactory:
    _AUTHORITY.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    return made(clock)


@pytest.mark.parametrize("key", [trustme.KeyType.RSA, trustme.KeyType.ECDSA])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("records", [False, True])
def test_connections_to_a_host_seen_lately_resume_its_session(
    factory: ContextFactory, version: ssl.TLSVersion, key: trustme.KeyType, records: bool
) -> None:
    site = Site(key_type=key)
    site.context.maximum_version = version
    factory.records = records
    connections = [visit(factory, site) for _ in range(3)]
    assert site.resumed == [False] * 3  # none of them was known to have answered
    for connection in connections:
        assert factory.answered(connection) is None
    assert [answered(factory, site) for _ in range(3)] == [None] * 3
    assert site.resumed[3:] == [True] * 3
    last = visit(factory, site)
    certificate, first = last.get_peer_certificate(), connections[0].get_peer_certificate()
    assert certificate is not None
    assert first is not None
    assert certificate.digest("sha256") == first.digest("sha256")
    assert visit(factory, site)
    assert site.resumed[6:] == [True, True]  # by connections at the same time, too


def test_a_session_is_resumed_after_its_connection_broke_off(factory: ContextFactory) -> None:
    site = Site()
    connection = visit(factory, site)
    factory.answered(connection)
    connection.bio_shutdown()
    with pytest.raises(SSL.Error):
        connection.recv(1)
    del connection
    answered(factory, site)
    assert site.resumed == [False, True]


def test_a_site_that_breaks_off_after_a_resumed_handshake_gets_full_ones_for_an_hour(
    factory: ContextFactory, clock: Clock
) -> None:
    site, broken_off = Site(), ConnectionResetError()
    factory.failed(visit(factory, site), broken_off)  # no session was resumed
    answered(factory, site)
    later = visit(factory, site)
    factory.answered(later)
    factory.failed(later, broken_off)  # it had an answer before
    factory.failed(visit(factory, site), SlotMissed())  # of which the site knows nothing
    factory.failed(visit(factory, site), broken_off)
    answered(factory, site)
    clock.later = 1.1 * _HOUR
    answered(factory, site)
    answered(factory, site)
    assert site.resumed == [False, False, True, True, True, False, False, True]


@pytest.mark.parametrize(("host", "port"), [(b"gallery.org", 443), (b"museum.org", 8443)])
def test_a_session_is_of_one_host_and_port(factory: ContextFactory, host: bytes, port: int) -> None:
    site = Site("museum.org", "gallery.org")
    answered(factory, site)
    answered(factory, site, host, port)
    answered(factory, site)
    assert site.resumed == [False, False, True]


def test_another_certificate_at_a_resumed_host_is_verified(factory: ContextFactory) -> None:
    past = datetime.now(UTC) - timedelta(days=1)
    answered(factory, Site())
    answered(factory, renewed := Site())
    assert renewed.resumed == [False]
    for invalid in (
        Site("gallery.org"),
        Site(authority=trustme.CA()),
        Site(not_before=past - timedelta(days=1), not_after=past),
    ):
        answered(factory, renewed)
        with pytest.raises(SSL.Error):
            visit(factory, invalid)
        assert invalid.resumed == []
    assert answered(factory, renewed) is None


@pytest.mark.parametrize(("name", "authority"), [("gallery.org", _AUTHORITY), ("museum.org", trustme.CA())])
def test_a_certificate_is_verified_each_hour_even_if_the_site_would_go_on_resuming(
    factory: ContextFactory, clock: Clock, name: str, authority: trustme.CA
) -> None:
    site = Site()
    answered(factory, site)
    for clock.later in (0.4 * _HOUR, 0.8 * _HOUR):
        answered(factory, site)
    assert site.resumed == [False, True, True]
    site.certify(name, authority=authority)  # with the same keys for tickets
    answered(factory, site)
    assert site.resumed[3:] == [True]
    clock.later = 1.01 * _HOUR
    with pytest.raises(SSL.Error):
        visit(factory, site)


def test_no_session_is_resumed_after_a_certificate_expired_or_the_clock_was_set_back(
    factory: ContextFactory, clock: Clock
) -> None:
    site = Site(not_after=datetime.now(UTC) + timedelta(seconds=0.2 * _HOUR))
    answered(factory, site)
    clock.later = 0.15 * _HOUR
    answered(factory, site)
    assert site.resumed == [False, True]
    clock.later = 0.21 * _HOUR
    answered(factory, site)
    assert site.resumed == [False, True, False]
    site = Site()
    answered(factory, site)
    clock.later = -0.1 * _HOUR
    answered(factory, site)
    assert site.resumed == [False, False]


def test_faults_of_certificates_are_noted_at_every_connection(factory: ContextFactory, clock: Clock) -> None:
    factory.records = True
    of_another, of_unknown, valid = Site("gallery.org"), Site(authority=trustme.CA()), Site()
    for _ in range(3):
        assert answered(factory, of_another, port=8443) == "certificate is for another name"
        assert answered(factory, of_unknown, port=4443) == "unable to get local issuer certificate"
        assert answered(factory, valid) is None
    assert of_another.resumed == of_unknown.resumed == [False] * 3
    assert valid.resumed == [False, True, True]
    assert answered(factory, of_another) == "certificate is for another name"  # where a valid session was kept
    for invalid in (of_another, of_unknown):  # nothing of a crawl that records goes to one that refuses
        with pytest.raises(SSL.Error):
            visit(made(clock), invalid)
    answered(refusing := made(clock), valid)
    assert valid.resumed[3:] == [False]
    answered(refusing, valid)
    assert valid.resumed[4:] == [True]


def test_sessions_kept_are_bounded_in_number_and_size(
    factory: ContextFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "_MAX_SESSIONS", 2)
    names = ["0.org", "1.org", "2.org"]
    site = Site(*names)
    for number in (0, 1, 0, 2, 0, 1):
        answered(factory, site, names[number].encode())
    assert site.resumed == [False, False, True, False, True, False]  # 1 was seen longest ago
    large = Site(*(f"{n}.{'a' * 40}.org" for n in range(200)))
    for _ in range(2):
        answered(factory, large, b"100." + b"a" * 40 + b".org")
    assert large.resumed == [False, False]
    assert len(factory.sessions._kept) == 2
    assert not factory.sessions._new


def test_sites_that_give_many_tickets_or_none_or_accept_none_are_visited_as_before(
    factory: ContextFactory,
) -> None:
    many, none = Site(), Site()
    many.context.num_tickets = 1000
    none.context.num_tickets = 0
    for _ in range(3):
        answered(factory, many)
        answered(factory, none, port=8443)
        answered(factory, Site(), port=4443)
    assert (many.resumed, none.resumed) == ([False, True, True], [False] * 3)
    none.context.options |= ssl.OP_NO_TICKET
    none.context.maximum_version = ssl.TLSVersion.TLSv1_2
    for _ in range(2):
        answered(factory, none, port=8443)
    assert none.resumed == [False] * 5
    assert factory.sessions._kept.keys() == {(b"museum.org", port) for port in (443, 4443, 8443)}


# A site that breaks off


class Transport(StringTransport):
    """In memory."""

    def setTcpNoDelay(self, enabled: bool) -> None:  # noqa: N802 - Twisted's name
        """Do nothing."""


class Endpoint:
    """Connects to whatever answers; `made` are the connections."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def connect(self, protocol_factory: Any) -> Any:
        protocol = protocol_factory.buildProtocol(None)
        self.made.append(protocol)
        protocol.makeConnection(Transport(peerAddress=IPv4Address("TCP", "192.0.2.1", 443)))
        return succeed(protocol)


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_site_that_breaks_off_the_handshake_where_a_session_is_resumed_gets_full_ones_for_an_hour(
    factory: ContextFactory, clock: Clock, hangs: bool
) -> None:
    site, endpoint, sending = Site(), Endpoint(), Sending()
    answered(factory, site)
    made: Any = endpoint
    secure = wrapClientTLS(factory.creatorForNetloc(b"museum.org", 443), made)
    getting = asyncio.create_task(Pool().connection("museum.org", secure, sending))
    await asyncio.sleep(0)
    if hangs:
        getting.cancel()
    else:
        endpoint.made[0].connectionLost(Failure(ConnectionLost()))
    with pytest.raises(asyncio.CancelledError if hangs else DownloadFailedError):
        await getting
    factory.failed(sending.carrier, ConnectionLost())
    answered(factory, site)
    assert site.resumed == [False, False]
    clock.later = 1.01 * _HOUR
    answered(factory, site)
    answered(factory, site)
    assert site.resumed == [False, False, False, True]
