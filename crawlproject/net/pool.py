"""Connections that are kept open between requests: few, and for a short time."""

from __future__ import annotations

import resource
from collections import OrderedDict
from contextvars import ContextVar
from typing import Any

from scrapy.utils.defer import deferred_from_coro
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.web.client import HTTPConnectionPool

from crawlproject.errors import ConfigError, SlotMissed, SlotMissedHere
from crawlproject.net.protocol import BoundedFactory, BoundedProtocol, Heads
from crawlproject.net.send_slot import Passage

_IDLE_S = 15.0  # how long an unused connection is kept; Twisted's 240 would keep those of thousands of hosts
_MAX_IDLE = 128  # unused connections of all hosts together, for each of http and https
_MAX_IDLE_A_HOST = 64
_LEAST_CONCURRENT = 16
_OTHER_FILES = 256  # Redis, the storage, the log, name servers, pictures being decoded

passage: ContextVar[Passage | None] = ContextVar("passage", default=None)  # of the request that connects
carriers: ContextVar[list[Any] | None] = ContextVar("carriers", default=None)  # its transports: sockets, or TLS
heads: ContextVar[Heads | None] = ContextVar("heads", default=None)  # where its heads go


class BoundedPool(HTTPConnectionPool):
    """Twisted's pool with a bound on all idle connections together; the longest idle is closed first.

    It is the last to hold a request back: one whose slot passes while its connection is made takes another slot,
    here if there is one soon, else by way of the frontier. Its connection is kept for the next request.
    """

    def __init__(self, reactor: Any) -> None:
        super().__init__(reactor, persistent=True)  # type: ignore[no-untyped-call]
        self.maxPersistentPerHost = _MAX_IDLE_A_HOST
        self.retryAutomatically = False  # without a send slot: see StaleConnection
        self._factory = BoundedFactory
        self.cachedConnectionTimeout = _IDLE_S  # type: ignore[assignment]
        self._idle: OrderedDict[Any, Any] = OrderedDict()  # connection -> key; the pool's own has no order

    def getConnection(self, key: Any, endpoint: Any) -> Any:  # noqa: N802
        """Return an idle connection, or a new one; the request is written to it at once.

        Fails as SlotMissed when that would be too late: the request was delayed on its way here from the gate, on
        an overloaded machine, or the connection took too long.
        """
        leave = passage.get()
        if leave is not None and not leave.is_open:
            return defer.fail(SlotMissedHere("the slot was missed on the way from the gate"))
        got = super().getConnection(key, endpoint)
        self._forget(key)
        return got.addCallback(self._admit, key, leave, carriers.get(), heads.get())

    def _newConnection(self, key: Any, endpoint: Any) -> Any:  # noqa: N802
        made: Deferred[Any] = super()._newConnection(key, endpoint)
        return made.addCallback(BoundedProtocol.when_ready)

    def _admit(
        self, connection: Any, key: Any, leave: Passage | None, noted: list[Any] | None, wanted: Heads | None
    ) -> Any:
        if noted is not None:
            noted.append(connection.transport.getHandle())
        connection.heads = wanted
        if leave is None or leave.is_open:
            if leave is not None:
                leave.use()
            return connection
        renewed = deferred_from_coro(self._renewed(connection, key, leave))
        return renewed.addCallback(self._admit, key, leave, None, wanted)  # the reactor has been round meanwhile

    async def _renewed(self, connection: Any, key: Any, leave: Passage) -> Any:
        """Return the connection when its request has another slot, and that has come.

        Raises:
            SlotMissed: it may not, or not soon.
            ConnectionLost: the site has closed the connection meanwhile.

        """
        admitted = False
        try:
            admitted = await leave.renew()
        finally:  # also where the request is aborted
            if not admitted and connection.state == "QUIESCENT":
                self._putConnection(key, connection)
        if connection.state != "QUIESCENT":
            raise ConnectionLost("the site closed the connection before it got a request")
        if not admitted:
            raise SlotMissed("the slot was missed while the connection was made")
        return connection

    def _putConnection(self, key: Any, connection: Any) -> None:  # noqa: N802
        if getattr(connection.transport, "disconnecting", False):
            return  # broken off with the last piece of its response: what is sent on it would have no answer
        connection.was_idle = True
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


def fit_open_files(concurrent: int) -> int:
    """Return how many requests a worker may have in flight, at most `concurrent`, without running out of files.

    Raises the soft limit of open files to what that takes. A host with several addresses may be tried at two of
    them at a time.

    Raises:
        ConfigError: the hard limit (`ulimit -Hn`) is too low for any.

    """
    besides = 2 * _MAX_IDLE + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        concurrent = min(concurrent, (hard - besides) // 2)
    needed = 2 * concurrent + besides
    if concurrent < _LEAST_CONCURRENT:
        raise ConfigError(
            f"ulimit -n is {hard}: a worker needs {2 * _LEAST_CONCURRENT + besides} open files at least; raise "
            "the limit (ulimit -Hn, LimitNOFILE of systemd)"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return concurrent
