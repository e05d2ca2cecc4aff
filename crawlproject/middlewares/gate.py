"""The gate: nothing goes out to a forbidden address, against a robots.txt, or without a send slot.

The frontier has looked up what decides on a leased request before it lets that go. If it has expired since, the
request goes back there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import CannotResolveHostError, IgnoreRequest

from crawlproject import config
from crawlproject.errors import (
    AddressRefused,
    NoNameServer,
    RobotsDisallowed,
    RobotsOptOut,
    RobotsUnreachable,
    SlotMissed,
    SlotMissedHere,
    StaleConnection,
)
from crawlproject.frontier.scheduler import scheduler_of
from crawlproject.middlewares import Middleware
from crawlproject.models import IDENTIFIER, LEASE, OPT_OUT, PASSAGE, SLOT, SOURCE, Lease, Slot
from crawlproject.net.send_slot import Passage, take_send_slot
from crawlproject.politeness.robots_txt import refusal_for_opt_outs
from crawlproject.sources.domains import domain_of_url, host_of_url, url_fault


class AddressMiddleware(Middleware):
    """Lets a request pass if its URL and its host's addresses may be crawled (politeness/addresses.py).

    This middleware gives a clear reason early; the guarantee is the resolver's (net/resolver.py),
    which never returns a forbidden address, wherever a request comes from.
    """

    async def process_request(self, request: Request) -> Request | None:
        """Return None to let `request` pass, or the request itself to send it back to the frontier.

        Raises:
            AddressRefused: the URL or an address of its host is forbidden.
            CannotResolveHostError: the host name does not resolve.
            NoNameServer: it is unknown whether it does.

        """
        resolver = scheduler_of(self.crawler).resolver
        if request.meta.get("proxy"):
            raise AddressRefused("a proxy would connect to unchecked addresses")
        if fault := url_fault(request.url):
            raise AddressRefused(fault)
        if resolver.may_be_reached(request.url):
            return None
        if not resolver.knows(request.url):
            if LEASE in request.meta:
                return request
            await resolver.look_up(request.url)
            if not resolver.knows(request.url):
                raise NoNameServer(resolver.outage or "the host could not be looked up")
        if refused := resolver.refusal(request.url):
            self.crawler.stats.inc_value("addresses/refused")
            raise AddressRefused(f"address refused: {refused}")
        if failure := resolver.failure(request.url):
            raise CannotResolveHostError(failure)
        return None


class RobotsMiddleware(Middleware):
    """Lets a request pass if the robots.txt of its host allows it (RFC 9309) and declares no opt-out for it.

    A request without a lease (`scrapy shell`) waits for the verdict here.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self.config = config.load(crawler.settings)
        self._keeps_all = getattr(crawler.spidercls, "one_item_each", False)

    async def process_request(self, request: Request) -> Request | None:
        """Return None to let `request` pass, or the request itself to send it back to the frontier.

        Raises:
            RobotsDisallowed, RobotsOptOut, RobotsUnreachable: it may not be fetched or kept, or not now.

        """
        if SLOT in request.meta:  # a robots.txt itself
            return None
        robots = scheduler_of(self.crawler).robots
        lease = request.meta.get(LEASE)
        source = lease.source if lease is not None else request.meta.get(SOURCE, domain_of_url(request.url))
        verdict = robots.verdict(request.url, source)
        if verdict is None and lease is not None:
            return request
        if verdict is None:
            verdict = await robots.look_up(request.url, source)
        if verdict is None:
            raise RobotsUnreachable("robots unreachable: no answer in time", 60.0)
        if verdict.allowed:
            if IDENTIFIER in request.meta or (lease is not None and self._keeps_all):
                self._heed(request, verdict.opt_outs)
            return None
        self.crawler.stats.inc_value("robots/refused" if verdict.retry_in is None else "robots/unreachable")
        if verdict.retry_in is not None:
            raise RobotsUnreachable(verdict.reason, verdict.retry_in)
        raise RobotsDisallowed(f"robots.txt: {verdict.reason}")

    def _heed(self, request: Request, declared: Mapping[str, str]) -> None:
        """Note the opt-outs with a request for a picture or page, in place of those of a redirect's origin.

        Raises:
            RobotsOptOut: one of them forbids keeping it, so it is not even fetched.

        """
        request.meta.pop(OPT_OUT, None)
        if refusal := refusal_for_opt_outs(declared, self.config):
            self.crawler.stats.inc_value("robots/opted_out")
            raise RobotsOptOut(f"opt-out: robots.txt: {refusal}")
        if declared:
            request.meta[OPT_OUT] = sorted(declared)


class TokenMiddleware(Middleware):
    """Lets a request pass if its slot has come and is unused; sits next to the downloader.

    A leased request brings its slot along. If the slot is spent or missed, the request goes back to the frontier,
    so that it does not wait here and take up a place in the downloader. A request for a robots.txt brings the
    slot that was acquired for it. Any other request without a lease (`scrapy shell`) gets a slot of its source
    here and waits for it. Without a pulse there are no slots: the gate fails closed. The slot is checked once more
    where the request is written to its connection (net/connections.py).
    """

    async def process_request(self, request: Request) -> Request | None:
        """Return None to let `request` pass, or the request itself to send it back to the frontier."""
        lease: Lease | None = request.meta.get(LEASE)
        if SLOT in request.meta:
            self._spend(request)
            return None
        if lease is None:
            await self._acquire(request)
            return None
        if lease.spent or not lease.is_fresh(asyncio.get_running_loop().time()):
            self.crawler.stats.inc_value("tokens/returned")
            if not lease.spent and not lease.revoked:
                scheduler_of(self.crawler).queue.pace.miss()
            return request
        lease.spent = True
        request.meta[PASSAGE] = Passage.of_lease(scheduler_of(self.crawler).state, lease, host_of_url(request.url))
        return None

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        """Send a request back, for another slot, if it was too late, or its connection had been closed.

        Raises:
            SlotMissed: the request was for a robots.txt; `RobotsFetcher` takes another slot for it.

        """
        if isinstance(exception, SlotMissed):
            self.crawler.stats.inc_value("tokens/late")
            if isinstance(exception, SlotMissedHere) and LEASE in request.meta:
                scheduler_of(self.crawler).queue.pace.miss()
        elif isinstance(exception, StaleConnection):
            self.crawler.stats.inc_value("tokens/stale_connections")
        else:
            return None
        if SLOT in request.meta:
            raise SlotMissed(str(exception))
        return request

    def _spend(self, request: Request) -> None:
        """Let a request for a robots.txt pass, which has its slot already.

        Raises:
            SlotMissed: the slot was not used in time, or was used before.

        """
        slot: Slot | None = request.meta[SLOT]
        request.meta[SLOT] = None
        if slot is None or asyncio.get_running_loop().time() > slot.latest:
            raise SlotMissed(f"the slot of {request.url} was missed")
        request.meta[PASSAGE] = Passage(scheduler_of(self.crawler).state, slot, host_of_url(request.url))

    async def _acquire(self, request: Request) -> None:
        """Wait for a slot of the source that `request` goes to.

        Raises:
            Excluded: nothing goes out to its host or source.
            IgnoreRequest: the crawl closes before a slot comes.

        """
        worker = scheduler_of(self.crawler)
        source, domain = request.meta.get(SOURCE), domain_of_url(request.url)
        host = host_of_url(request.url)
        slot = await take_send_slot(worker.state, worker.shutdown, source=source, domain=domain, host=host)
        if slot is None:
            raise IgnoreRequest(f"the crawl closes: no send slot for {request.url}")
        request.meta[PASSAGE] = Passage(worker.state, slot, host)
        self.crawler.stats.inc_value("tokens/acquired")
