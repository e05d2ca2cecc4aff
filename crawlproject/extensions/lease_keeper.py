"""Settles every lease."""

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
    FETCH_TIME,
    FREE_RETRIES,
    LEASE,
    PACED_AS,
    RETRIES,
    Failure,
    ImageEvent,
    ImageFacts,
    Lease,
    LinkRotEvent,
)
from crawlproject.politeness.outcomes import DROPPED, INTERNAL_FAULT, Becomes, Outcome, Sample, of_status
from crawlproject.politeness.retry import GiveUp, decide, delay
from crawlproject.sources.domains import host_of_url
from crawlproject.state.scripts import Settlement
from crawlproject.texts import one_line, printable, without_userinfo
from crawlproject.worker import worker_of

logger = logging.getLogger(__name__)

_SWEEP_EVERY_S = 1.0


class LeaseKeeper:
    """Turns the end of an item into the settlement of its lease, and keeps this worker alive in Redis.

    `politeness/outcomes.py` says what follows from each end; here it is carried out. An image or link rot event
    is emitted by the very step that ends the lease. An exception in a pipeline or in the spider is an internal
    fault. Leases that left the engine without an item are found by a sweep.
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
        """Start the heartbeat and the sweep."""
        self.worker = worker_of(self.crawler)
        self._differed = False
        self._loops = Loops(self.worker.state)
        self._loops.start(self._beat, self._sweep)

    async def spider_closed(self) -> None:
        """Stop; by now the scheduler has settled everything."""
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
                self._done(lease, request, item, 200, {"thumbnails": 1, "bytes": item.filesize})
            case LinkRotEvent():
                self._done(lease, request, item, item.status, {"link_rot": 1})
            case Failure():
                self._failed(lease, request, item)

    def item_dropped(
        self, item: Any, response: Response | TwistedFailure | None, exception: BaseException
    ) -> None:
        """Make a dead letter of an item that a pipeline has dropped."""
        request = _request_of(response)
        if request is not None and LEASE in request.meta:
            reason = printable(f"dropped: {exception}")
            self._add_dead_letter(request.meta[LEASE], codec.paced_as(request), reason, _counts(DROPPED))

    def item_error(self, item: Any, response: Response | TwistedFailure | None, failure: TwistedFailure) -> None:
        """Return the request of an item on which a pipeline has failed to the frontier."""
        request = _request_of(response)
        if request is not None and LEASE in request.meta:
            self._redeliver(
                request.meta[LEASE],
                INTERNAL_FAULT,
                printable(without_userinfo(f"{type(failure.value).__name__}: {failure.value}")),
            )

    # Settlements

    def _done(
        self,
        lease: Lease,
        request: Request,
        event: ImageEvent | LinkRotEvent,
        status: int,
        counts: Mapping[str, int],
    ) -> None:
        settlement = Settlement(
            lease.id,
            codec.paced_as(request),
            event=(event.STREAM, event.to_json()),
            counts={"fetched": 1, **counts},
            **_evidence(of_status(status), request, status),
        )
        self.worker.lease_queue.settle(lease, settlement)

    def _failed(self, lease: Lease, request: Request, failure: Failure) -> None:
        outcome = failure.outcome
        match outcome.becomes:
            case Becomes.HANDED_BACK:
                self.worker.lease_queue.give_back(lease, counts=_counts(outcome))
            case Becomes.POSTPONED:
                self.crawler.stats.inc_value("store/returned")
                wait = delay(1, 0.0, self.config, random.random())
                self.worker.lease_queue.give_back(lease, delay=wait, counts=_counts(outcome))
            case Becomes.REDELIVERED:
                self._redeliver(lease, outcome, failure.reason)
            case _:
                self._retry_or_give_up(lease, request, failure)

    def _retry_or_give_up(self, lease: Lease, request: Request, failure: Failure) -> None:
        meta, status = request.meta, failure.status
        counts = _counts(failure.outcome) | ({} if status is None else {"fetched": 1})
        evidence = _evidence(failure.outcome, request, status, self._hold(lease, request, failure))
        verdict = decide(failure, meta.get(RETRIES, 0), meta.get(FREE_RETRIES, 0), self.config, random.random())
        if isinstance(verdict, GiveUp):
            evidence["refusal"] = failure.outcome.is_refusal
            self._add_dead_letter(lease, codec.paced_as(request), verdict.reason, counts, evidence, failure.facts)
            return
        again = _from_the_start(request, {RETRIES: verdict.retries, FREE_RETRIES: verdict.free_retries})
        settlement = Settlement(
            lease.id,
            codec.paced_as(request),
            codec.encode(again, self.worker.spider, deliveries=lease.deliveries),
            delay=verdict.delay,
            counts=counts | {"retried": 1},
            **evidence,
        )
        self.worker.lease_queue.settle(lease, settlement)

    def _hold(self, lease: Lease, request: Request, failure: Failure) -> float | None:
        """Return the seconds for which the source is held: its Retry-After, up to CRAWL_RETRY_DELAY_MAX."""
        if not failure.outcome.slows or not failure.retry_after:
            return None
        hold = min(failure.retry_after, self.config.retry_delay_max)
        if hold < failure.retry_after:
            logger.warning(
                "Source %s sent a Retry-After of %.0f s; it is held for CRAWL_RETRY_DELAY_MAX, %.0f s",
                lease.source,
                failure.retry_after,
                hold,
                extra={"request": request},
            )
        return hold

    def _add_dead_letter(
        self,
        lease: Lease,
        source: str,
        reason: str,
        counts: Mapping[str, int],
        evidence: Mapping[str, Any] | None = None,
        facts: ImageFacts | None = None,
    ) -> None:
        settlement = Settlement(
            lease.id,
            source,
            lease.entry,
            dead=reason,
            image=None if facts is None else one_line(facts.named()),
            counts={**counts, "failed": 1},
            **(evidence or {}),
        )
        self.worker.lease_queue.settle(lease, settlement)

    def _redeliver(self, lease: Lease, outcome: Outcome, reason: str) -> None:
        """Return the request after a while, with a delivery counted; after the last one it is a dead letter."""
        self.crawler.stats.inc_value("frontier/faults")
        deliveries = lease.deliveries + 1
        entry, counts = codec.with_deliveries(lease.entry, deliveries), _counts(outcome)
        if deliveries >= self.config.max_deliveries:
            reason = f"internal fault, delivery {deliveries}: {reason}"
            settlement = Settlement(lease.id, lease.source, entry, dead=reason, counts=counts | {"failed": 1})
        else:
            wait = delay(deliveries, 0.0, self.config, random.random())
            settlement = Settlement(lease.id, lease.source, entry, delay=wait, counts=counts)
        self.worker.lease_queue.settle(lease, settlement)

    # Beside the items

    async def _beat(self) -> None:
        """Tell Redis that this worker is alive; learn which others are not, and whether this one had lapsed."""
        await asyncio.sleep(min(self.config.heartbeat_timeout / 6, 5.0))
        leases, state = self.worker.lease_queue, self.worker.state
        beat = partial(
            state.scripts.heartbeat,
            state.worker_id,
            timeout=self.config.heartbeat_timeout,
            max_deliveries=self.config.max_deliveries,
        )
        reply = await beat(join=False)
        if not reply.alive and self.worker.shutdown.has_begun:
            return  # it has left
        if not reply.alive:
            logger.warning("This worker was silent for too long: its leases have been returned to the queues")
            leases.forget_waiting()
            reply = await beat(join=True)
        for worker, returned, dead in reply.lost:
            logger.warning("Worker %s is silent: %d leases returned, %d dead letters", worker, returned, dead)
        # Leases on their way, to here or to Redis, make the numbers differ for a moment: look twice.
        differs = reply.leases > len(leases.leases)
        if differs and self._differed:
            await leases.reconcile()
        self._differed = differs

    async def _sweep(self) -> None:
        """Find unsettled leases whose request has left the engine."""
        await asyncio.sleep(_SWEEP_EVERY_S)
        present = engine.in_progress(self.crawler)
        for lease in list(self.worker.lease_queue.leases.values()):
            if lease.request is not None and lease.request not in present:
                logger.error(
                    "A request to source %s left the engine without an item",
                    lease.source,
                    extra={"request": lease.request},
                )
                self._redeliver(lease, INTERNAL_FAULT, "left the engine without an item: see the worker's log")


def _counts(outcome: Outcome) -> dict[str, int]:
    """Return what an outcome adds to the counters of the source."""
    return {} if outcome.kind is None else {f"error_{outcome.kind}": 1}


def _evidence(outcome: Outcome, request: Request, status: int | None, hold: float | None = None) -> dict[str, Any]:
    """Return the fields of a `Settlement` that say something about the source that was requested."""
    return {
        "status": outcome.noted if status is None else str(status),
        "fine": {Sample.FINE: True, Sample.ERROR: False}.get(outcome.sample),
        "host": host_of_url(request.url),
        "answered": outcome.sample is Sample.ANSWER,
        "latency": None if status is None else request.meta.get("download_latency"),
        "fetch_s": request.meta.get(FETCH_TIME) if status is not None or outcome.kind == "timeout" else None,
        "slows": outcome.slows,
        "hold": hold,
    }


def _request_of(response: Response | TwistedFailure | None) -> Request | None:
    """Return the request that an item came of; after an errback Scrapy gives the failure as response."""
    request: Request | None = getattr(response, "request", None)
    return request


def _from_the_start(request: Request, meta: Mapping[str, Any]) -> Request:
    """Return the request as it was before any redirect, for another attempt."""
    kept = {name: value for name, value in request.meta.items() if not name.startswith("redirect_")}
    kept.pop(PACED_AS, None)  # that is settled anew
    return request.replace(url=codec.seed_url(request), meta={**kept, **meta})
