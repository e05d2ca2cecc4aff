"""Connections that are kept open between requests: few, and for a short time."""

from __future__ import annotations

import asyncio
import resource
from collections import OrderedDict
from contextvars import ContextVar
from typing import Any

from twisted.internet import defer
from twisted.web.client import HTTPConnectionPool

from crawlproject.errors import ConfigError, SlotMissed
from crawlproject.net.protocol import BoundedFactory

_IDLE_S = 15.0  # how long an unused connection is kept; Twisted's 240 would keep those of thousands of hosts
_MAX_IDLE = 128  # unused connections of all hosts together, for each of http and https
_MAX_IDLE_A_HOST = 64
_OTHER_FILES = 256  # Redis, the storage, the log, name servers, pictures being decoded

latest: ContextVar[float | None] = ContextVar("latest", default=None)  # `LATEST` of the request that connects
carriers: ContextVar[list[Any] | None] = ContextVar("carriers", default=None)  # its transports: sockets, or TLS


class BoundedPool(HTTPConnectionPool):
    """Twisted's pool with a bound on all idle connections together; the longest idle is closed first."""

    def __init__(self, reactor: Any) -> None:
        super().__init__(reactor, persistent=True)  # type: ignore[no-untyped-call]
        self.maxPersistentPerHost = _MAX_IDLE_A_HOST
        self.retryAutomatically = False  # without a send slot: see StaleConnection
        self._factory = BoundedFactory
        self.cachedConnectionTimeout = _IDLE_S  # type: ignore[assignment]
        self._idle: OrderedDict[Any, Any] = OrderedDict()  # connection -> key; the pool's own has no order

    def getConnection(self, key: Any, endpoint: Any) -> Any:  # noqa: N802
        """Return an idle connection, or a new one.

        Fails as SlotMissed when the request was delayed on its way here from the gate, on an overloaded machine,
        for so long that it would go out too late.
        """
        deadline = latest.get()
        if deadline is not None and asyncio.get_running_loop().time() > deadline:
            return defer.fail(SlotMissed("the slot was missed on the way from the gate"))
        got = super().getConnection(key, endpoint)
        self._forget(key)
        if (noted := carriers.get()) is not None:

            def note(connection: Any) -> Any:
                noted.append(connection.transport.getHandle())
                return connection

            got.addCallback(note)
        return got

    def _putConnection(self, key: Any, connection: Any) -> None:  # noqa: N802
        super()._putConnection(key, connection)  # type: ignore[no-untyped-call]
        if connection in self._timeouts:
            self._idle[connection] = key
        while len(self._timeouts) > _MAX_IDLE:
            oldest, oldest_key = self._idle.popitem(last=False)
            if oldest in self._timeouts:
                self._timeouts[oldest].cancel()
                self._removeConnection(oldest_key, oldest)

    def _removeConnection(self, key: Any, connection: Any) -> None:  # noqa: N802
        super()._removeConnection(key, connection)  # type: ignore[no-untyped-call]
        self._forget(key)

    def _forget(self, key: Any) -> None:
        """Forget connections that are no longer idle; Twisted keeps an empty list for every host it ever met."""
        if not self._connections.get(key, True):
            del self._connections[key]
        while self._idle and next(iter(self._idle)) not in self._timeouts:
            self._idle.popitem(last=False)


def check_open_files(concurrent: int) -> None:
    """Make sure that a worker of `concurrent` requests may open the files it needs; raise the soft limit to that.

    A host with several addresses may be tried at two of them at a time.

    Raises:
        ConfigError: the hard limit (`ulimit -Hn`) is too low.

    """
    needed = 2 * concurrent + 2 * _MAX_IDLE + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise ConfigError(
                f"ulimit -n is {hard}: a worker with CONCURRENT_REQUESTS={concurrent} may need {needed} open "
                f"files; raise the limit (ulimit -Hn, LimitNOFILE of systemd), or lower CONCURRENT_REQUESTS"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
