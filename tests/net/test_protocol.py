"""When a request is written to its connection, it is on the wire: nothing that this process does delays it."""

# mypy: disable-error-code="no-untyped-call"
# Twisted's client has no types.

from __future__ import annotations

import socket
import ssl
import threading
from typing import Any

import trustme
from OpenSSL import SSL
from twisted.internet import reactor, tcp
from twisted.internet._sslverify import optionsForClientTLS
from twisted.internet.protocol import Factory
from twisted.internet.ssl import Certificate, trustRootFromCertificates
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.web import _newclient
from twisted.web.http_headers import Headers

from crawlproject.net.protocol import BoundedProtocol
from tests.waiting import PATIENCE_S


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
