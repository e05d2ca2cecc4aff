"""Settles every lease."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from scrapy import Request, signals
from scrapy.core.scraper import Scraper
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.spidermiddlewares.referer import RefererMiddleware
from scrapy.utils.asyncgen import as_async_generator
from scrapy.utils.defer import aiter_errback
from twisted.python.failure import Failure as TwistedFailure

from crawlproject.extensions import Extension
from crawlproject.frontier import codec
from crawlproject.frontier.discovery import LISTED
from crawlproject.models import (
    AGAIN,
    FETCH_TIME,
    FOUND,
    FREE_RETRIES,
    LEASE,
    PACED_AS,
    RETRIES,
    REVISIT,
    Event,
    Fetch,
    Lease,
    LinkRotEvent,
)
from crawlproject.pages.items import ReadPage
from crawlproject.pages.revisits import Look
from crawlproject.politeness.outcomes import (
    DROPPED,
    INTERNAL_FAULT,
    LONGEST_DELAY_S,
    MOST_DELIVERIES,
    Becomes,
    Failure,
    Outcome,
    Sample,
    decide,
    delay,
    failure_of,
    not_html_type,
    of_status,
)
from crawlproject.sources.domains import host_of_url
from crawlproject.state.calls import Revisit, Settlement
from crawlproject.texts import one_line, printable, scrapy_command, without_userinfo

logger = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.2  # for requests that have left the engine
_MOST_TOLD = 100  # reasons of dead letters of own spiders in the log; some reasons name an address, so are endless


class LeaseKeeper(Extension):
    """Ends each lease.

    `politeness/outcomes.py` says what follows from each end; here it is carried out. A lease ends when its request
    has left the engine, its items are through the pipelines, and the requests that it led to are stored. The same
    step emits its event. A request that is tried again goes back at once.

    An exception in a pipeline or in the spider is an internal fault. So is, of a spider that promises
    `one_item_each`, a request that has left the engine without an item.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._one_item_each = getattr(crawler.spider, "one_item_each", False)
        self._told: set[str] = set()  # reasons of dead letters that were logged
        self._ends: dict[str, Settlement] = {}  # by lease id: of requests that are in the engine still
        crawler.signals.connect(self.response_received, signal=signals.response_received)
        crawler.signals.connect(self.item_scraped, signal=signals.item_scraped)
        crawler.signals.connect(self.item_dropped, signal=signals.item_dropped)
        crawler.signals.connect(self.item_error, signal=signals.item_error)
        crawler.signals.connect(self.spider_error, signal=signals.spider_error)

    def begin(self) -> None:
        """Start to look for leases that end; when the spider closes the scheduler has settled everything."""
        self.scheduler.queue.is_settled = self.failed
        self.scheduler.queue.settle_ended = self.settle_ended
        self.loops.start(self._look_for_ended)
        if self._one_item_each:
            self.crawler.engine.scraper.__class__ = _OneItemScraper  # no setting names that of Scrapy's engine

    # How requests end

    def response_received(self, response: Response, request: Request) -> None:
        """Note that a callback is given a response, which ends a request unless an item says more."""
        if (lease := request.meta.get(LEASE)) is not None:
            lease.reached_spider = True
            if not self._one_item_each:
                self._ends[lease.id] = _processed(lease, request, response)

    def failed(self, lease: Lease, failure: TwistedFailure) -> bool:
        """Note what becomes of a request without a response; tell whether its errback is to be left out.

        As with Scrapy's retries, it is called once, when the request has been given up.
        """
        request: Request = failure.request  # type: ignore[attr-defined]
        error = cast("BaseException", failure.value)
        found = failure_of(error, self.crawler.settings.getint("DOWNLOAD_MAXSIZE"))
        lease.reached_spider = True
        if found.outcome.becomes in {Becomes.IMAGE, Becomes.LINK_ROT}:
            return False  # a 404: the spider's errback may want to know, but that is all there is to it
        self._failed(lease, request, found)
        return self._one_item_each or lease.id not in self.scheduler.queue.leases

    def item_scraped(self, item: Any, response: Response | TwistedFailure | None) -> None:
        """Note what follows from an item, if that is how a request ends."""
        request = _request_of(response)
        if request is None or LEASE not in request.meta:
            return
        lease: Lease = request.meta[LEASE]
        match item:
            case Event():
                outcome = of_status(item.status, gone=(item.status,) if isinstance(item, LinkRotEvent) else ())
                self._ends[lease.id] = _done(lease, request, outcome, item.status, item.counts, item)
            case ReadPage():
                self._ends[lease.id] = _done(
                    *(lease, request, of_status(item.status), item.status, item.counts, item.event),
                    more_events=tuple((one.STREAM, one.to_json()) for one in item.media),
                    parse_s=item.parse_s,
                    revisit=self._revisit(request, item.look),
                )
            case Failure():
                self._failed(lease, request, item)
            case _ if (end := self._ends.get(lease.id)) is not None:
                counts = {**end.counts, "items": end.counts.get("items", 0) + 1}
                self._ends[lease.id] = replace(end, counts=counts)

    def item_dropped(
        self, item: Any, response: Response | TwistedFailure | None, exception: BaseException
    ) -> None:
        """Make a dead letter of a request whose one item a pipeline has dropped."""
        request = _request_of(response)
        if request is not None and LEASE in request.meta and self._one_item_each:
            lease: Lease = request.meta[LEASE]
            status = getattr(response, "status", None)  # None: `response` is the failure
            reason = printable(f"dropped: {exception}")
            self._ends[lease.id] = _dead_letter(lease, request, DROPPED, status, reason)

    def item_error(self, item: Any, response: Response | TwistedFailure | None, failure: TwistedFailure) -> None:
        """Return the request of an item on which a pipeline has failed to the frontier."""
        request = _request_of(response)
        if request is not None and LEASE in request.meta:
            self._redeliver(
                request.meta[LEASE],
                INTERNAL_FAULT,
                printable(without_userinfo(f"{type(failure.value).__name__}: {failure.value}")),
            )

    def spider_error(self, failure: TwistedFailure, response: Response | TwistedFailure) -> None:
        """Return a request to the frontier whose callback has failed."""
        self.item_error(None, response, failure)

    async def _look_for_ended(self) -> None:
        await asyncio.sleep(_LOOK_EVERY_S)
        self.settle_ended()

    def settle_ended(self) -> None:
        """Settle the leases whose requests have left the engine, and whose finds are stored (scheduler)."""
        slot, leases = self.crawler.engine._slot, self.scheduler.queue.leases
        present = (
            set[Request]() if slot is None else slot.inprogress
        )  # from `next_request` to the end of pipelines
        for lease in list(leases.values()):
            request = lease.request
            if request is None or request in present or lease.unstored:
                continue
            if (end := self._ends.pop(lease.id, None)) is not None:
                self._settle(lease, end)
                continue
            missing = "an item" if self._one_item_each else "a response"
            logger.error(
                "A request to source %s left the engine without %s",
                lease.source,
                missing,
                extra={"request": request},
            )
            self._redeliver(lease, INTERNAL_FAULT, f"left the engine without {missing}: see the worker's log")
        for name in self._ends.keys() - leases.keys():  # they went back after all
            del self._ends[name]

    # Settlements

    def _settle(self, lease: Lease, settlement: Settlement) -> None:
        if not self.scheduler.queue.settle(lease, settlement):
            return
        if settlement.fine is not None:
            self.crawler.stats.inc_value(f"circuits/samples/{'fine' if settlement.fine else 'error'}")
        reason, is_own = settlement.dead, not self._one_item_each
        if reason and is_own and reason not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(reason)
            see = scrapy_command("dead", "list", spider=self.scheduler.spider.name)
            logger.warning(
                "Dead letter of source %s: %s (logged once for each reason): see %s",
                *(lease.source, reason, see),
                extra={"source": lease.source},
            )

    def _revisit(self, request: Request, look: Look | None) -> Revisit | None:
        """Return what has a page looked at again, if it is."""
        if look is None:
            return None
        again = _from_the_start(request, {REVISIT: list(look)})
        kept = {name: value for name, value in again.meta.items() if name not in {RETRIES, FREE_RETRIES, AGAIN}}
        again = again.replace(meta=kept, headers={}, priority=LISTED)
        return Revisit(codec.digest(again), codec.encode(again, self.scheduler.spider), look.interval)

    def _failed(self, lease: Lease, request: Request, failure: Failure) -> None:
        outcome = failure.outcome
        match outcome.becomes:
            case Becomes.HANDED_BACK:
                self.scheduler.queue.give_back(lease, counts=_counts(outcome))
            case Becomes.POSTPONED:
                self.crawler.stats.inc_value("store/returned")
                wait = delay(1, 0.0, self.config, random.random())
                self.scheduler.queue.give_back(lease, delay=wait, counts=_counts(outcome))
            case Becomes.REDELIVERED:
                self._redeliver(lease, outcome, failure.reason)
            case Becomes.NOTHING:
                self._ends[lease.id] = _not_html(lease, request, failure)
            case _:
                settlement = self._next_attempt(lease, request, failure)
                if settlement.dead is None:
                    self._settle(lease, settlement)
                else:
                    self._ends[lease.id] = settlement

    def _next_attempt(self, lease: Lease, request: Request, failure: Failure) -> Settlement:
        """Return the settlement that has a request tried again, or makes it a dead letter."""
        meta, status = request.meta, failure.status
        counts = _counts(failure.outcome) | ({} if status is None else {"fetched": 1})
        asked = failure.retry_after if failure.outcome.slows else None
        learned = _evidence(failure.outcome, request, status, min(asked, LONGEST_DELAY_S) if asked else None)
        verdict = decide(failure, meta.get(RETRIES, 0), meta.get(FREE_RETRIES, 0), self.config, random.random())
        if isinstance(verdict, str):
            learned["forbidden"] = failure.outcome.kind if failure.outcome.is_refusal else None
            learned["refusal"] = failure.outcome.is_refusal or _is_expected(request, failure)
            learned["image"] = None if failure.facts is None else one_line(failure.facts.named())
            return _dead_letter(lease, request, failure.outcome, status, verdict, counts, learned)
        again = _from_the_start(request, {RETRIES: verdict.retries, FREE_RETRIES: verdict.free_retries})
        return Settlement(
            lease.id,
            codec.paced_as(request),
            codec.encode(again, self.scheduler.spider, deliveries=lease.deliveries),
            delay=verdict.delay,
            counts=counts | {"retried": 1},
            **learned,
        )

    def _redeliver(self, lease: Lease, outcome: Outcome, reason: str) -> None:
        """Return the request after a while, with a delivery counted; after the last one it is a dead letter."""
        self.crawler.stats.inc_value("frontier/faults")
        deliveries = lease.deliveries + 1
        entry, counts = codec.with_deliveries(lease.entry, deliveries), _counts(outcome)
        settlement = Settlement(lease.id, lease.source, entry, counts=counts)
        if deliveries >= MOST_DELIVERIES:
            dead, attempt = f"internal fault, delivery {deliveries}: {reason}", one_line({"kind": outcome.kind})
            settlement = replace(settlement, dead=dead, attempt=attempt, counts=counts | {"failed": 1})
        else:
            settlement = replace(settlement, delay=delay(deliveries, 0.0, self.config, random.random()))
        self._settle(lease, settlement)


class _OneItemScraper(Scraper):
    """Scrapy's, without queue, tasks and generators that it makes for each response, for many items at a time."""

    async def _scrape(self, result: Response | TwistedFailure, request: Request) -> None:
        """Have a response pass the spider and the pipelines, and spider middlewares that look at items."""
        # The one of Scrapy's that is left sets a header of requests, and does nothing with items.
        others = any(type(one) is not RefererMiddleware for one in self.spidermw.middlewares)
        if others or isinstance(result, TwistedFailure):
            await super()._scrape(result, request)
            return
        try:
            items = await self.call_spider_async(result, request)
        except Exception:
            self.handle_spider_error(TwistedFailure(), request, result)  # type: ignore[no-untyped-call]
        else:
            await self.handle_spider_output_async(items, request, result)

    async def handle_spider_output_async(
        self, result: Any, request: Request, response: Response | TwistedFailure
    ) -> None:
        """Have the items of a response go through the pipelines, one after the other."""
        if isinstance(result, list):
            for item in result:
                await self._process_spidermw_output_async(item, response)
            return
        items = aiter_errback(as_async_generator(result), self.handle_spider_error, request, response)
        async for item in items:
            await self._process_spidermw_output_async(item, response)


def _is_expected(request: Request, failure: Failure) -> bool:
    """Tell whether what was found on a page, or is looked at again, has failed through no fault of ours.

    Nobody has vouched for such links, and on the web many fail: their dead letters are no reason to pause.
    """
    was_found = request.meta.get("depth", 0) > 0 or FOUND in request.meta or REVISIT in request.meta
    return was_found and failure.outcome.kind not in {None, "ours", "store"}


def _done(
    lease: Lease,
    request: Request,
    outcome: Outcome,
    status: int | None,
    counts: Mapping[str, int],
    event: Event | None = None,
    **more: Any,
) -> Settlement:
    """Return the end of a request that is done, with an event or without one."""
    return Settlement(
        lease.id,
        codec.paced_as(request),
        event=None if event is None else (event.STREAM, event.to_json()),
        done=event is None,
        counts={"fetched": 1, **counts},
        **_evidence(outcome, request, status),
        **more,
    )


def _processed(lease: Lease, request: Request, response: Response) -> Settlement:
    """Return the settlement of a request with whose response a spider is done, whatever its status."""
    outcome = of_status(response.status)
    if outcome.becomes is Becomes.LINK_ROT:
        counts = {"link_rot": 1}
    elif response.status // 100 == 2:
        counts = {"responses": 1, "bytes": len(response.body)}
    else:
        counts = _counts(outcome)
    return _done(lease, request, outcome, response.status, counts)


def _not_html(lease: Lease, request: Request, failure: Failure) -> Settlement:
    """Return the settlement of a page that is none: a dead letter of a seed, else nothing but counted."""
    outcome, status = failure.outcome, failure.status
    if request.meta.get("depth", 0) > 0:
        return _done(lease, request, outcome, status, {f"not_html_{not_html_type(failure.content_type)}": 1})
    learned = _evidence(outcome, request, status) | {"refusal": REVISIT in request.meta}  # as in `_is_expected`
    return _dead_letter(lease, request, outcome, status, failure.reason, {"fetched": 1}, learned)


def _evidence(outcome: Outcome, request: Request, status: int | None, hold: float | None = None) -> dict[str, Any]:
    """Return the fields of a `Settlement` that say something about the source that was requested.

    `fine` is what makes it a sample. `hold`: for so many seconds the source wants to be left alone.
    """
    return {
        "status": outcome.noted if status is None else str(status),
        "fine": {Sample.FINE: True, Sample.ERROR: False}.get(outcome.sample),
        "host": host_of_url(request.url),
        "latency": None if status is None else request.meta.get("download_latency"),
        "fetch_s": request.meta.get(FETCH_TIME) if status is not None or outcome.kind == "timeout" else None,
        "slows": outcome.slows,
        "hold": hold,
    }


def _dead_letter(
    lease: Lease,
    request: Request,
    outcome: Outcome,
    status: int | None,
    reason: str,
    counts: Mapping[str, int] | None = None,
    learned: Mapping[str, Any] | None = None,
) -> Settlement:
    """Return the end of a request that is given up; its event says how its last attempt ended."""
    fetch = Fetch.of(request, request.url)._asdict()
    if status is None:
        fetch["final_url"] = None
    return Settlement(
        lease.id,
        codec.paced_as(request),
        lease.entry,
        dead=reason,
        attempt=one_line({"status": status, "kind": outcome.kind, **fetch}),
        counts={**(counts or {}), "failed": 1},
        **(learned or {}),
    )


def _counts(outcome: Outcome) -> dict[str, int]:
    """Return what an outcome adds to the counters of the source."""
    return {} if outcome.kind is None else {f"error_{outcome.kind}": 1}


def _request_of(response: Response | TwistedFailure | None) -> Request | None:
    """Return the request that an item came of; after an errback Scrapy gives the failure as response."""
    request: Request | None = getattr(response, "request", None)
    return request


def _from_the_start(request: Request, meta: Mapping[str, Any]) -> Request:
    """Return the request as it was before any redirect, for another attempt."""
    kept = {name: value for name, value in request.meta.items() if not name.startswith("redirect_")}
    kept.pop(PACED_AS, None)  # that is settled anew
    return request.replace(url=codec.seed_url(request), meta={**kept, **meta})
