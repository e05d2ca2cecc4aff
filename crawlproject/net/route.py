"""Whether this worker reaches the web at all: a fault of its own is not charged to the sites."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import random
import socket
from collections import Counter
from collections.abc import Awaitable
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.utils._download_handlers import normalize_bind_address
from scrapy.utils.datatypes import LocalCache
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.protocol import Factory, Protocol

from crawlproject.errors import NoRoute
from crawlproject.exclusions import exclusion_of
from crawlproject.politeness.addresses import port_of
from crawlproject.politeness.outcomes import of_exception
from crawlproject.runtime import Breaker, runtime_of
from crawlproject.sources.domains import domain_of_url, host_of_url
from crawlproject.state.client import REDIS_TROUBLE, State

_OWN = {
    *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM),  # no socket
    *(errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM),  # no port or address; a firewall
}
_FROM_AFAR = {None, errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT}
_ROOT_SERVER = ("198.41.0.4", "2001:503:ba3e::2:30")  # looked up in the routing table only
_SEVERAL = 3  # domains that have answered before: if none does now, the fault is not theirs
_REMEMBERED = 16  # domains that failed, and as many that answered
_PATIENCE_S = 3.0  # that a failure waits for a response of another domain
_TRIAL_S = 5.0  # for a trial connection; TCP repeats a lost packet after 1 s and 3 s
_POLL_S = 0.1
_MOST_TRIALS = 6  # in a minute: then it leases again, as perhaps other hosts can be reached

_routes: WeakKeyDictionary[Crawler, Route] = WeakKeyDictionary()


class Route:
    """Tells failures of this worker's connections from failures of the sites.

    A download that fails without a response is this worker's fault where its own stack has no socket or no route.
    Otherwise the failure waits for a response of another domain. Where none comes in time, the worker tries to
    connect to three domains that have failed since the last response, and to three of the last that answered. If
    none of several lets it connect, all of which have answered some worker before, this worker is at fault, else
    the site. A worker that knows fewer than three such domains cannot tell, and blames the site.

    A fault of this worker pauses leasing until a trial succeeds, or for a minute where its own stack has a route:
    perhaps hosts that it does not know yet can be reached. A trial connection carries no request.
    """

    def __init__(self, crawler: Crawler, state: State) -> None:
        self.breaker = Breaker("route", crawler)
        self._state = state
        self._bind = normalize_bind_address(crawler.settings.get("DOWNLOAD_BIND_ADDRESS"))
        self._under_way: Counter[str] = Counter()  # by domain
        self._failed: dict[str, tuple[str, str]] = {}  # domain -> URL and source, since the last response
        self._answered = LocalCache[str, tuple[str, str]](_REMEMBERED)  # the same of the last that did
        self._peer: Any = None  # the address of the last
        self._answered_at = self._recovered_at = -math.inf
        self._trials = 0  # that failed
        self._trying = asyncio.Lock()

    async def watch(self, request: Request, source: str, download: Awaitable[Response]) -> Response:
        """Return the response of `download`, or raise as it does where the site is at fault.

        Raises:
            NoRoute: this worker is at fault.

        """
        domain, began = domain_of_url(request.url), asyncio.get_running_loop().time()
        self._under_way[domain] += 1
        try:
            response = await download
        except Exception as error:
            if of_exception(error).kind in {"connect", "timeout"}:
                if len(self._failed) < _REMEMBERED:
                    self._failed[domain] = (request.url, source)
                await self._judge(error, began)
            raise
        finally:
            self._under_way[domain] -= 1
            if not self._under_way[domain]:
                del self._under_way[domain]
        self._note_answer()
        self._peer = response.ip_address
        self._answered.pop(domain, None)  # it comes last
        self._answered[domain] = (request.url, source)
        return response

    async def _judge(self, error: Exception, began: float) -> None:
        """Return where a site is at fault for `error`, or where that cannot be told.

        Raises:
            NoRoute: this worker is at fault.

        """
        now = asyncio.get_running_loop().time
        failed_at = now()
        number: Any = getattr(error, "osError", None)  # of Twisted's ConnectError, which Scrapy passes on
        if number in _OWN or (number not in _FROM_AFAR and self._stack_fault()):
            self._trip(os.strerror(number))
        while not self.breaker.outage and self._answered_at < failed_at:
            if len({*self._under_way, *self._failed, *self._answered}) < _SEVERAL:
                break
            if now() > failed_at + _PATIENCE_S:
                await self._try(failed_at)
                break
            await asyncio.sleep(_POLL_S)
        if self.breaker.outage or began < self._recovered_at:
            self.breaker.count("returned")
            raise NoRoute(self.breaker.outage or "this worker reached no site meanwhile")

    async def _try(self, failed_at: float) -> None:
        """Pause if no known domain lets this worker connect, unless that has been tried since `failed_at`.

        Raises:
            NoRoute: Redis cannot be reached, either.

        """
        async with self._trying:
            if self.breaker.outage or self._answered_at > failed_at:
                return
            try:
                for domain, (_, source) in list(self._failed.items()):
                    (status,) = await self._state.scripts.inspect([source])
                    if not any(map(str.isdecimal, status.statuses)):
                        self._failed.pop(domain, None)  # perhaps it has never been there
            except REDIS_TROUBLE as error:
                self._state.failed(error)
                raise NoRoute("neither a site nor Redis can be reached") from error
            domains = list(dict.fromkeys([*self._failed, *self._answered]))
            if len(domains) >= _SEVERAL and await self._trial():
                self._trip(f"tried {', '.join(domains[:_SEVERAL])}")

    def _trip(self, why: str) -> None:
        self.breaker.trip(
            f"this worker reaches no site ({why}): check the network, the routes, the firewall, "
            "DOWNLOAD_BIND_ADDRESS and the limit of open files of this machine; it tries again at intervals",
            self._trial,
        )

    def _note_answer(self) -> None:
        self._answered_at = asyncio.get_running_loop().time()
        self._failed.clear()

    async def _trial(self) -> Exception | None:
        """Return why this worker reaches none of the domains that it knows; None if it does, or may."""
        fault: Exception | None = self._stack_fault()
        answered = random.sample(list(self._answered.items()), min(len(self._answered), _SEVERAL))
        hosts = dict(list(self._failed.items())[:_SEVERAL] + answered)
        if fault is None and len(hosts) >= _SEVERAL:
            connections = (self._connect(*host) for host in hosts.values())
            results = await asyncio.gather(*connections, return_exceptions=True)
            if all(isinstance(result, Exception) for result in results):
                fault = NoRoute("no trial connection was made")
                self._trials += 1
                if self.breaker.outage and self._trials % _MOST_TRIALS == 0:
                    self._recovered_at = asyncio.get_running_loop().time()
                    return None
        if fault is None:
            self._note_answer()
            if self.breaker.outage:
                self._recovered_at = self._answered_at
        return fault

    async def _connect(self, url: str, source: str) -> None:
        """Connect to the host of a URL, by way of the address guard.

        Raises:
            Exception: it cannot be connected to, or nothing may go out to it.

        """
        from twisted.internet import reactor

        if name := await exclusion_of(self._state, source, host_of_url(url)):
            raise NoRoute(f"{name} is excluded")
        host, factory = urlsplit(url).hostname or "", Factory.forProtocol(Protocol)
        endpoint: Any = HostnameEndpoint(reactor, host, port_of(url), _TRIAL_S, self._bind)
        protocol = await maybe_deferred_to_future(endpoint.connect(factory))
        protocol.transport.abortConnection()

    def _stack_fault(self) -> OSError | None:
        """Return why this machine's own stack reaches nothing; None if it may. Nothing is sent."""
        fault = None
        for address in (*_ROOT_SERVER, *([str(self._peer)] if self._peer else [])):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                with socket.socket(family, socket.SOCK_DGRAM) as one:
                    if self._bind is not None:
                        one.bind(self._bind)
                    one.connect((address, 53))
                    return None
            except OSError as error:
                fault = fault or error
        return fault


def route_of(crawler: Crawler) -> Route:
    """Return what tells the faults of a crawl that has opened its spider; its handlers share it."""
    route = _routes.get(crawler)
    if route is None:
        route = _routes[crawler] = Route(crawler, runtime_of(crawler).state)
    return route
