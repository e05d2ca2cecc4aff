"""Sees every lease to its end."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from functools import partial
from typing import Any, Self

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.http import Response
from twisted.python.failure import Failure as TwistedFailure

from crawlproject import config, engine
from crawlproject.frontier import codec
from crawlproject.loops import Loops
from crawlproject.models import (
    FREE_RETRIES,
    LEASE,
    MEMORY,
    RETRIES,
    SOURCE,
    STOPPED,
    Failure,
    ImageEvent,
    Lease,
    LinkRotEvent,
    StorageUnavailable,
)
from crawlproject.politeness.circuit import sample_of
from crawlproject.politeness.kinds import error_kind
from crawlproject.politeness.retry import GiveUp, decide, delay
from crawlproject.state.scripts import Settlement
from crawlproject.texts import printable, without_userinfo
from crawlproject.worker import worker_of

logger = logging.getLogger(__name__)

_SWEEP_EVERY = 1.0  # seconds


class LeaseKeeper:
    """Turns the end of an item into the settlement of its lease, and keeps this worker alive in Redis.

    An image or link rot event is emitted by the very step that ends the lease. A failure is retried or
    becomes a dead letter, as `politeness.backoff` decides. While no thumbnail can be stored requests go back, with
    a back-off and nothing counted. Other trouble of our own (an exception in a pipeline or
    a callback, a full disk) returns the request with a delivery counted. Leases that left the engine without
    a sign are found by a sweep.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.config = config.load(crawler.settings)
        crawler.signals.connect(self.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(self.spider_closed, signal=signals.spider_closed)
        crawler.signals.connect(self.item_scraped, signal=signals.item_scraped)
        crawler.signals.connect(self.item_dropped, signal=signals.item_dropped)
        crawler.signals.connect(self.item_error, signal=signals.item_error)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the keeper of `crawler`'s leases."""
        return cls(crawler)

    def spider_opened(self) -> None:
        """Begin to beat and to sweep."""
        self.worker = worker_of(self.crawler)
        self._suspect = False
        self._loops = Loops(self.worker.state)
        self._loops.start(self._beat, self._sweep)

    async def spider_closed(self) -> None:
        """Stop; the scheduler has settled all by now."""
        await self._loops.stop()

    # Ends of items

    def item_scraped(self, item: Any, response: Response | TwistedFailure | None) -> None:
        """Settle the lease of a terminal item."""
        request = _request_of(response)
        if request is None or LEASE not in request.meta:
            return
        lease: Lease = request.meta[LEASE]
        match item:
            case ImageEvent():
                counts = {"fetched": 1, "thumbnails": 1, "bytes": item.filesize}
                self._done(lease, request, item, counts, "200")
            case LinkRotEvent():
                self._done(lease, request, item, {"fetched": 1, "link_rot": 1}, str(item.status))
            case Failure():
                self._failed(lease, request, item)
            case StorageUnavailable():
                self.crawler.stats.inc_value("store/returned")
                wait = delay(1, 0.0, self.config, random.random())
                self.worker.lease_queue.give_back(lease, delay=wait, counts={"error_store": 1})

    def item_dropped(
        self, item: Any, response: Response | TwistedFailure | None, exception: BaseException
    ) -> None:
        """Make a dead letter of what a pipeline has dropped on purpose."""
        request = _request_of(response)
        if request is not None and LEASE in request.meta:
            self._bury(request.meta[LEASE], request.meta[SOURCE], printable(f"dropped: {exception}"), {})

    def item_error(self, item: Any, response: Response | TwistedFailure | None, failure: TwistedFailure) -> None:
        """Return the request of an item that a pipeline has failed on."""
        request = _request_of(response)
        if request is not None and LEASE in request.meta:
            self._fault(
                request.meta[LEASE],
                printable(without_userinfo(f"{type(failure.value).__name__}: {failure.value}")),
            )

    # Settlements

    def _done(
        self,
        lease: Lease,
        request: Request,
        event: ImageEvent | LinkRotEvent,
        counts: Mapping[str, int],
        status: str,
    ) -> None:
        settlement = Settlement(
            lease.id,
            event.source,
            event=(event.STREAM, event.to_json()),
            counts=counts,
            status=status,
            fine=True,
            latency=request.meta.get("download_latency"),
        )
        self.worker.lease_queue.settle(lease, settlement)

    def _failed(self, lease: Lease, request: Request, failure: Failure) -> None:
        if failure.kind == STOPPED:
            self.worker.lease_queue.give_back(lease)
            return
        if failure.kind == MEMORY:
            self._fault(lease, failure.reason)
            return
        meta = request.meta
        counts = {f"error_{error_kind(failure)}": 1} | ({} if failure.status is None else {"fetched": 1})
        evidence = self._evidence(lease, request, failure)
        outcome = decide(failure, meta.get(RETRIES, 0), meta.get(FREE_RETRIES, 0), self.config, random.random())
        if isinstance(outcome, GiveUp):
            self._bury(lease, failure.source, outcome.reason, counts, evidence)
            return
        again = _from_the_start(request, {RETRIES: outcome.retries, FREE_RETRIES: outcome.free_retries})
        settlement = Settlement(
            lease.id,
            failure.source,
            codec.encode(again, self.worker.spider, deliveries=lease.deliveries),
            delay=outcome.delay,
            counts=counts | {"retried": 1},
            **evidence,
        )
        self.worker.lease_queue.settle(lease, settlement)

    def _evidence(self, lease: Lease, request: Request, failure: Failure) -> dict[str, Any]:
        """Return what a failure says of the source that was asked."""
        hold = None
        if failure.status in {429, 503} and failure.retry_after:
            hold = min(failure.retry_after, self.config.retry_delay_max)
            if hold < failure.retry_after:
                logger.warning(
                    "Source %s asks for %.0f s of patience, CRAWL_RETRY_DELAY_MAX gives it %.0f s",
                    lease.source,
                    failure.retry_after,
                    hold,
                    extra={"request": request},
                )
        fine = sample_of(failure)
        status = failure.kind if failure.status is None else str(failure.status)
        return {
            # What never reached the site is no status of it.
            "status": None if fine is None and failure.status is None else status,
            "fine": fine,
            "answered": failure.kind == "opt_out",
            "latency": request.meta.get("download_latency") if failure.status is not None else None,
            "throttled": failure.status in {429, 503},
            "hold": hold,
        }

    def _bury(
        self,
        lease: Lease,
        source: str,
        reason: str,
        counts: Mapping[str, int],
        evidence: Mapping[str, Any] | None = None,
    ) -> None:
        settlement = Settlement(
            lease.id, source, lease.entry, dead=reason, counts={**counts, "failed": 1}, **(evidence or {})
        )
        self.worker.lease_queue.settle(lease, settlement)

    def _fault(self, lease: Lease, reason: str) -> None:
        """Give back after trouble of our own: a delivery counted, a while later, a dead letter at the last."""
        self.crawler.stats.inc_value("frontier/faults")
        deliveries = lease.deliveries + 1
        entry, counts = codec.with_deliveries(lease.entry, deliveries), {"error_ours": 1}
        if deliveries >= self.config.max_deliveries:
            reason = f"trouble of our own, delivery {deliveries}: {reason}"
            settlement = Settlement(lease.id, lease.source, entry, dead=reason, counts=counts | {"failed": 1})
        else:
            wait = delay(deliveries, 0.0, self.config, random.random())
            settlement = Settlement(lease.id, lease.source, entry, delay=wait, counts=counts)
        self.worker.lease_queue.settle(lease, settlement)

    # Beside the items

    async def _beat(self) -> None:
        """Tell Redis that this worker lives; learn from it who does not, and whether we ourselves did."""
        await asyncio.sleep(min(self.config.heartbeat_timeout / 6, 5.0))
        leases, state = self.worker.lease_queue, self.worker.state
        beat = partial(
            state.scripts.heartbeat,
            state.worker,
            timeout=self.config.heartbeat_timeout,
            max_deliveries=self.config.max_deliveries,
        )
        reply = await beat(join=False)
        if not reply.alive and self.worker.shutdown.has_begun:
            return  # it has left
        if not reply.alive:
            logger.warning("This worker was silent for too long: its leases have gone to others")
            leases.forget_waiting()
            reply = await beat(join=True)
        for worker, returned, dead in reply.lost:
            logger.warning("Worker %s is silent: %d leases return, %d dead letters", worker, returned, dead)
        # Leases on their way, to here or to Redis, make the numbers differ for a moment: look twice.
        differs = reply.leases > len(leases.leases)
        if differs and self._suspect:
            await leases.reconcile()
        self._suspect = differs

    async def _sweep(self) -> None:
        """Find leases whose request has left the engine and that nobody has settled."""
        await asyncio.sleep(_SWEEP_EVERY)
        present = engine.in_progress(self.crawler)
        for lease in list(self.worker.lease_queue.leases.values()):
            if lease.request is not None and lease.request not in present:
                logger.error(
                    "A request to source %s left the engine without an item",
                    lease.source,
                    extra={"request": lease.request},
                )
                self._fault(lease, "left the engine without an item: see the worker's log")


def _request_of(response: Response | TwistedFailure | None) -> Request | None:
    """Return the request that an item came of; after an errback Scrapy gives the failure as response."""
    request: Request | None = getattr(response, "request", None)
    return request


def _from_the_start(request: Request, meta: Mapping[str, Any]) -> Request:
    """Return the request as it was before any redirect, for another attempt."""
    kept = {name: value for name, value in request.meta.items() if not name.startswith("redirect_")}
    return request.replace(url=codec.seed_url(request), meta={**kept, **meta})
