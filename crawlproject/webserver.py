"""Serves HTTP from the process's own reactor: /metrics here, the dashboard in a package of its own."""

from __future__ import annotations

import socket
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.web import resource, server

from crawlproject.errors import ConfigError

LONGEST_BODY = 65_536  # bytes of a request

Resource: Any = resource.Resource  # Twisted has no types here
_Site: Any = server.Site
_Request: Any = server.Request


class _BoundedRequest(_Request):  # type: ignore[misc]
    """A request whose body ends; Twisted would write any number of bytes into a file."""

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        """Take a part of the body."""
        if self.content.tell() + len(data) > LONGEST_BODY:
            self.channel.forceAbortClient()
            return
        super().handleContentChunk(data)


class _QuietSite(_Site):  # type: ignore[misc]
    noisy = False

    def log(self, request: Any) -> None:
        """Log nothing: a scrape each few seconds is no news."""


class Metrics(Resource):  # type: ignore[misc]
    """/metrics of a registry, and nothing else."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self._registry = registry
        self.putChild(b"metrics", self)

    def render_GET(self, request: Any) -> bytes:  # noqa: N802 - Twisted's name
        """Return the metrics as they are now."""
        request.setHeader(b"Content-Type", CONTENT_TYPE_LATEST.encode())
        return generate_latest(self._registry)


def listen(root: Any, address: str, port: int, setting: str) -> Any:
    """Serve the resource `root`; return what `close` wants. `setting` is what the port was given by.

    Raises:
        ConfigError: the port cannot be had.

    """
    from twisted.internet import reactor
    from twisted.internet.error import CannotListenError

    listening: Any = reactor
    try:
        return listening.listenTCP(port, _QuietSite(root, _BoundedRequest), interface=address)
    except CannotListenError as error:
        raise _taken(address, port, setting, error.socketError) from None


def url_of(address: str, port: int) -> str:
    """Return the URL of what listens there."""
    return f"http://{f'[{address}]' if ':' in address else address}:{port}"


async def close(served: Any) -> None:
    """Answer no more."""
    closing = served.stopListening()
    if closing is not None:
        await maybe_deferred_to_future(closing)


def check_port(address: str, port: int, setting: str) -> None:
    """Make sure that a port can be had, before anything starts.

    Raises:
        ConfigError: it cannot.

    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((address, port))
        except OSError as error:
            raise _taken(address, port, setting, error) from None


def _taken(address: str, port: int, setting: str, error: object) -> ConfigError:
    return ConfigError(
        f"{setting}={port} is not available at {address} ({error}): each process of a machine needs its own"
    )
