"""Serves /metrics from the process's own reactor."""

from __future__ import annotations

import logging
import socket
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.web import resource, server

from crawlproject.errors import ConfigError

logger = logging.getLogger(__name__)

_Resource: Any = resource.Resource  # Twisted has no types here
_Site: Any = server.Site


class _Metrics(_Resource):  # type: ignore[misc]
    isLeaf = True  # noqa: N815 - Twisted's name

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self._registry = registry

    def render_GET(self, request: Any) -> bytes:  # noqa: N802 - Twisted's name
        request.setHeader(b"Content-Type", CONTENT_TYPE_LATEST.encode())
        return generate_latest(self._registry)


class _QuietSite(_Site):  # type: ignore[misc]
    noisy = False

    def log(self, request: Any) -> None:
        """Log nothing: a scrape each few seconds is no news."""


def serve(registry: CollectorRegistry, address: str, port: int) -> Any:
    """Serve `registry` at /metrics; return what `close` wants.

    Raises:
        ConfigError: the port cannot be had.

    """
    from twisted.internet import reactor
    from twisted.internet.error import CannotListenError

    root = _Resource()
    root.putChild(b"metrics", _Metrics(registry))
    listening: Any = reactor
    try:
        served = listening.listenTCP(port, _QuietSite(root), interface=address)
    except CannotListenError as error:
        raise _taken(address, port, error.socketError) from None
    logger.info("Metrics at http://%s:%d/metrics", f"[{address}]" if ":" in address else address, port)
    return served


async def close(served: Any) -> None:
    """Answer no more."""
    closing = served.stopListening()
    if closing is not None:
        await maybe_deferred_to_future(closing)


def check_port(address: str, port: int) -> None:
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
            raise _taken(address, port, error) from None


def _taken(address: str, port: int, error: object) -> ConfigError:
    return ConfigError(
        f"CRAWL_METRICS_PORT={port} cannot be had at {address} ({error}): each process of a machine needs its own"
    )
