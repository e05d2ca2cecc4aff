"""Serves HTTP from the process's reactor: /metrics here, the dashboard in its own package."""

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
    """Serve the resource `root`; return the listening port, for `close`. `setting` names the port's setting.

    Raises:
        ConfigError: the port is not available.

    """
    from twisted.internet import reactor
    from twisted.internet.error import CannotListenError

    listening: Any = reactor
    try:
        return listening.listenTCP(port, _QuietSite(root, _BoundedRequest), interface=address)
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
