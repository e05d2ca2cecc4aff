"""Whether this worker reaches the web at all: a fault of its own is not charged to the sites."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import socket
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.utils._download_handlers import normalize_bind_address
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.protocol import Factory, Protocol

from crawlproject.breaker import Circuit
from crawlproject.errors import NoRoute, Stopped
from crawlproject.politeness.addresses import port_of
from crawlproject.politeness.outcomes import of_exception
from crawlproject.sources.domains import domain_of_url, host_of_url
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.state.exclusions import exclusion_of
from crawlproject.state.source_counts import read_statuses
from crawlproject.worker import Shutdown

_SHORTAGE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
# A router on the way to one site can report some of these, too, so this machine's own stack is asked.
_UNROUTED = {
    errno.ENETUNREACH,
    errno.ENETDOWN,
    errno.EHOSTUNREACH,
    errno.EADDRNOTAVAIL,
    errno.EACCES,
    errno.EPERM,
    errno.EINVAL,  # a route of type "blackhole"
}
_ROOT_SERVER = ("198.41.0.4", "2001:503:ba3e::2:30")  # only looked up in the routing table
_SEVERAL = 3  # domains that have answered somebody: if none does, it is not them
_PATIENCE_S = 3.0  # that a failure waits for an answer of another domain
_TRIAL_S = 5.0  # for a trial connection; a lost packet is repeated after 1 s and 3 s
_POLL_S = 0.1


class Route:
    """Tells failures of this worker's connections from failures of the sites.

    A download that fails without a response is this worker's fault where its own stack has no socket or no route.
    Else it waits for a response of another domain. Where none comes in time, the worker tries to connect to the
    domains that have failed since the last response and to the three that answered last. If none of several lets
    it connect, all of which have answered some worker before, it is to blame; else the site is. A worker that
    knows fewer than three such domains cannot tell, and blames the site.

    A fault of this worker pauses leasing until a trial succeeds: the next ones follow at intervals of up to a
    minute. A trial connection carries no request.
    """

    def __init__(self, crawler: Crawler, state: State, shutdown: Shutdown) -> None:
        self.circuit = Circuit("route", crawler)
        self._state = state
        self._shutdown = shutdown
        self._bind = normalize_bind_address(crawler.settings.get("DOWNLOAD_BIND_ADDRESS"))
        self._under_way: Counter[str] = Counter()  # by domain
        self._failed: dict[str, tuple[str, str]] = {}  # domain -> URL and source, since the last answer
        self._answered: OrderedDict[str, tuple[str, str]] = OrderedDict()  # the same of the last ones that did
        self._peer: Any = None  # the address of the last one
        self._answered_at = self._recovered_at = -math.inf
        self._trying = asyncio.Lock()

    async def watch(self, request: Request, source: str, download: Awaitable[Response]) -> Response:
        """Return the response of `download`, or raise as it does where the site is to blame.

        Raises:
            NoRoute: this worker is to blame.
            Stopped: the worker shuts down before that is known.

        """
        domain, began = domain_of_url(request.url), asyncio.get_running_loop().time()
        self._under_way[domain] += 1
        try:
            response = await download
        except Exception as error:
            if of_exception(error).kind not in {"connect", "timeout"}:
                raise
            failure = error
        else:
            self._note_answer()
            self._peer = response.ip_address
            self._answered[domain] = (request.url, source)
            self._answered.move_to_end(domain)
            if len(self._answered) > _SEVERAL:
                self._answered.popitem(last=False)
            return response
        finally:
            self._under_way[domain] -= 1
            if not self._under_way[domain]:
                del self._under_way[domain]
        self._failed[domain] = (request.url, source)
        await self._judge(domain, began, failure)
        raise failure

    async def _judge(self, domain: str, began: float, failure: Exception) -> None:
        """Return when the site is to blame for `failure`, or when that cannot be told.

        Raises:
            NoRoute, Stopped: see `watch`.

        """
        loop = asyncio.get_running_loop()
        failed_at = loop.time()
        number = _errno_of(failure)
        if number in _SHORTAGE:
            self._trip(os.strerror(number), self._ask_stack)
        elif number in _UNROUTED and (fault := self._stack_fault()) is not None:
            self._trip(fault.strerror or str(fault), self._ask_stack)
        while True:
            if self.circuit.outage or began < self._recovered_at:
                self.circuit.count("returned")
                raise NoRoute(self.circuit.outage or "this worker has reached no site meanwhile")
            if self._answered_at > failed_at:
                return
            if self._shutdown.has_begun:
                raise Stopped("the worker stops, and has reached no site lately")
            known = {domain, *self._failed, *self._answered, *self._under_way}
            if len(known) < _SEVERAL or (loop.time() > failed_at + _PATIENCE_S and not await self._try(failed_at)):
                return
            await asyncio.sleep(_POLL_S)

    async def _try(self, failed_at: float) -> bool:
        """Find out whether this worker or a site is to blame, unless that is known; False: it cannot be told.

        Raises:
            NoRoute: Redis cannot be reached, either.

        """
        async with self._trying:
            if self.circuit.outage or self._answered_at > failed_at:
                return True
            try:
                for domain, (_, source) in list(self._failed.items()):
                    (statuses,) = await read_statuses(self._state.shard_for(source), [source])
                    if not any(map(str.isdecimal, statuses)):
                        self._failed.pop(domain, None)  # perhaps it has never been there
            except REDIS_TROUBLE as error:
                self._state.failed(error)
                raise NoRoute("neither sites nor Redis can be reached") from error
            hosts = self._failed | self._answered
            if len(hosts) < _SEVERAL:
                return False
            if await self._try_sites() is not None:
                self._trip(f"{', '.join(hosts)}: none answers", self._try_sites)
            return True

    def _trip(self, why: str, trial: Callable[[], Awaitable[Exception | None]]) -> None:
        self.circuit.trip(
            f"no connection to the web can be made ({why}): check the network, the routes, the firewall, "
            "DOWNLOAD_BIND_ADDRESS and the limit of open files of this machine; it is tried at intervals",
            trial,
        )

    def _note_answer(self) -> None:
        self._answered_at = asyncio.get_running_loop().time()
        self._failed.clear()

    # Trials

    def _stack_fault(self) -> OSError | None:
        """Return why this machine's own stack reaches nothing; None if it may. Nothing is sent."""
        fault = None
        for address in (*_ROOT_SERVER, *([str(self._peer)] if self._peer else [])):
            try:
                with socket.socket(
                    socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM
                ) as one:
                    if self._bind is not None:
                        one.bind(self._bind)
                    one.connect((address, 53))
                    return None
            except OSError as error:
                fault = fault or error
        return fault

    async def _ask_stack(self) -> Exception | None:
        if (fault := self._stack_fault()) is None:
            self._recovered_at = asyncio.get_running_loop().time()
            self._note_answer()
        return fault

    async def _try_sites(self) -> Exception | None:
        """Connect to sites that failed, and to those that answered last; return None if one lets us connect."""
        hosts = (self._failed | self._answered).values()
        results = await asyncio.gather(*(self._connect(*host) for host in hosts), return_exceptions=True)
        if all(isinstance(result, Exception) for result in results):
            return NoRoute("no site lets this worker connect")
        if self.circuit.outage:
            self._recovered_at = asyncio.get_running_loop().time()
        self._note_answer()
        return None

    async def _connect(self, url: str, source: str) -> None:
        """Connect to the host of a URL, by way of the address guard.

        Raises:
            Exception: it cannot be connected to, or nothing may go out to it.

        """
        from twisted.internet import reactor

        host = host_of_url(url)
        if name := await exclusion_of(self._state.shard_for(source), source, host):
            raise NoRoute(f"{name} is excluded")
        endpoint = HostnameEndpoint(reactor, urlsplit(url).hostname or "", port_of(url), _TRIAL_S, self._bind)
        factory: Any = Factory.forProtocol(Protocol)
        protocol = await maybe_deferred_to_future(endpoint.connect(factory))
        protocol.transport.abortConnection()


def _errno_of(error: BaseException | None) -> int | None:
    """Return the operating system's number of an error, or of what has caused it."""
    while error is not None:
        number = getattr(error, "osError", None) or getattr(error, "errno", None)
        if isinstance(number, int):
            return number
        error = error.__cause__
    return None
