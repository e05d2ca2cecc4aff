"""The gate: nothing goes out without a send slot."""

from __future__ import annotations

import asyncio
from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest

from crawlproject.errors import SlotMissed, SlotMissedHere, StaleConnection
from crawlproject.frontier.worker import worker_of
from crawlproject.models import LEASE, PASSAGE, SLOT, SOURCE, Lease, Slot
from crawlproject.net.send_slot import Passage, take_send_slot
from crawlproject.sources.domains import domain_of_url, host_of_url


class TokenMiddleware:
    """Lets a request pass if its slot has come and is unused; sits next to the downloader.

    A leased request brings its slot along. If the slot is spent or missed, the request goes back to the frontier,
    so that it does not wait here and take up a place in the downloader. A request for a robots.txt brings the
    slot that was acquired for it. Any other request without a lease (`scrapy shell`) gets a slot of its source
    here and waits for it. Without a pulse there are no slots: the gate fails closed. The slot is checked once more
    where the request is written to its connection (net/pool.py).
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the gate of `crawler`."""
        return cls(crawler)

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
                worker_of(self.crawler).lease_queue.pace.miss()
            return request
        lease.spent = True
        request.meta[PASSAGE] = Passage.of_lease(worker_of(self.crawler).state, lease, host_of_url(request.url))
        return None

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        """Send a request back, for another slot, if it was too late, or its connection had been closed.

        Raises:
            SlotMissed: the request was for a robots.txt; `RobotsFetcher` takes another slot for it.

        """
        if isinstance(exception, SlotMissed):
            self.crawler.stats.inc_value("tokens/late")
            if isinstance(exception, SlotMissedHere) and LEASE in request.meta:
                worker_of(self.crawler).lease_queue.pace.miss()
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
        request.meta[PASSAGE] = Passage(worker_of(self.crawler).state, slot, host_of_url(request.url))

    async def _acquire(self, request: Request) -> None:
        """Wait for a slot of the source that `request` goes to.

        Raises:
            Excluded: nothing goes out to its host or source.
            IgnoreRequest: the crawl closes before a slot comes.

        """
        worker = worker_of(self.crawler)
        source, domain = request.meta.get(SOURCE), domain_of_url(request.url)
        host = host_of_url(request.url)
        slot = await take_send_slot(worker.state, worker.shutdown, source=source, domain=domain, host=host)
        if slot is None:
            raise IgnoreRequest(f"the crawl closes: no send slot for {request.url}")
        request.meta[PASSAGE] = Passage(worker.state, slot, host)
        self.crawler.stats.inc_value("tokens/acquired")
