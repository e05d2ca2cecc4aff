"""Serves HTTP from the process's reactor: for plug-ins, which give it their pages as resources of Twisted."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from scrapy.utils.defer import maybe_deferred_to_future
from twisted.protocols import policies
from twisted.web import resource, server

from crawlproject.errors import ConfigError

LONGEST_BODY = 65_536  # bytes of a request
MOST_CONNECTIONS = 256  # of a server; one more, and the oldest is let go

Resource: Any = resource.Resource  # Twisted has no types here
_Site: Any = server.Site
_Request: Any = server.Request
_WrappingFactory: Any = policies.WrappingFactory


class _BoundedRequest(_Request):  # type: ignore[misc]
    """A request with a bound on its body; Twisted would write any number of bytes into a file."""

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        """Take a part of the body."""
        if self.content.tell() + len(data) > LONGEST_BODY:
            self.channel.forceAbortClient()
            return
        super().handleContentChunk(data)


class _QuietSite(_Site):  # type: ignore[misc]
    noisy = False

    def log(self, request: Any) -> None:
        """Log nothing: a scrape every few seconds is not worth a line."""


class _BoundedConnections(_WrappingFactory):  # type: ignore[misc]
    """Lets the oldest connection go when there are too many: to refuse the newest would lock the operator out."""

    noisy = False

    def registerProtocol(self, p: Any) -> None:  # noqa: N802 - Twisted's name
        """Count a new connection."""
        super().registerProtocol(p)
        if len(self.protocols) > MOST_CONNECTIONS:
            oldest = next(iter(self.protocols))
            del self.protocols[oldest]  # at once: others may come before it is closed
            oldest.abortConnection()

    def unregisterProtocol(self, p: Any) -> None:  # noqa: N802 - Twisted's name
        """Forget a connection that is closed."""
        self.protocols.pop(p, None)


def host_of(header: str) -> str:
    """Return the name or address in a `Host` header, in lower case; "" when it has none."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def is_address(name: str, *, loopback: bool = False) -> bool:
    """Tell whether a host is an IP address (of this machine alone, with `loopback`)."""
    try:
        address = ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or not loopback


def listen(root: Any, address: str, port: int, setting: str) -> Any:
    """Serve the resource `root`; return the listening port, for `close`. `setting` names the port's setting.

    Raises:
        ConfigError: the port is not available.

    """
    from twisted.internet import reactor
    from twisted.internet.error import CannotListenError

    listening: Any = reactor
    try:
        site = _BoundedConnections(_QuietSite(root, _BoundedRequest))
        return listening.listenTCP(port, site, interface=address)
    except CannotListenError as error:
        raise _taken(address, port, setting, error.socketError) from None


def url_of(address: str, port: int) -> str:
    """Return the URL of the server at this address and port."""
    return f"http://{f'[{address}]' if ':' in address else address}:{port}"


async def close(served: Any) -> None:
    """Stop listening."""
    closing = served.stopListening()
    if closing is not None:
        await maybe_deferred_to_future(closing)


def check_port(address: str, port: int, setting: str) -> None:
    """Make sure that a port is available, before anything starts.

    Raises:
        ConfigError: it is not.

    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise _taken(address, port, setting, error) from None


def _taken(address: str, port: int, setting: str, error: object) -> ConfigError:
    return ConfigError(
        f"{setting}={port} is not available at {address} ({error}): each process on a machine needs its own port"
    )
