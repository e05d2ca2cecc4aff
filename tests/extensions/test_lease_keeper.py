"""The keeper's settlements, for each way in which an item can end, and circuits as a worker sees them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from scrapy import Request
from scrapy.exceptions import DownloadConnectionRefusedError, DownloadTimeoutError
from scrapy.http import Response
from scrapy.logformatter import LogFormatter
from scrapy.spidermiddlewares.httperror import HttpError
from twisted.python.failure import Failure as TwistedFailure

from crawlproject import controls
from crawlproject.errors import AddressRefused, RobotsDisallowed, RobotsOptOut, RobotsUnreachable
from crawlproject.extensions import circuits
from crawlproject.extensions.circuits import Circuits
from crawlproject.extensions.lease_keeper import LeaseKeeper, _OneItemScraper
from crawlproject.frontier import codec
from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.models import (
    FETCH_TIME,
    FOUND,
    IDENTIFIER,
    LEASE,
    RETRIES,
    REVISIT,
    SOURCE,
    ImageEvent,
    ImageFacts,
    LinkRotEvent,
)
from crawlproject.politeness.outcomes import (
    INTERNAL_FAULT,
    NOT_HTML,
    STOPPED,
    STORAGE_UNAVAILABLE,
    UNREADABLE,
    Failure,
    Outcome,
    of_exception,
    of_status,
)
from crawlproject.sinks.sink import event_of
from crawlproject.spiders.images import ImagesSpider
from crawlproject.state.source_counts import counts_in
from crawlproject.streams.streams import EventEntry
from tests.conftest import open_scheduler
from tests.state.calls.calls import put, rule
from tests.waiting import until_async

URL = "http://museum.example/a.jpg"
WHO: dict[str, Any] = {"identifier": "a", "url": URL, "source": "museum"}
FETCH: dict[str, Any] = {"final_url": URL, "redirects": 0, "attempts": 1, "fetch_s": 0.1}
TIMEOUT = Failure(outcome=of_exception(DownloadTimeoutError()), reason="timeout: too slow")


def failure(status: int, retry_after: float | None = None) -> Failure:
    return Failure(outcome=of_status(status, retry_after), reason=f"status {status}",
                   status=status, retry_after=retry_after)  # fmt: skip


def failure_with(error: BaseException) -> TwistedFailure:
    return TwistedFailure(error)  # type: ignore[no-untyped-call]


class Case:
    """One leased request and the keeper that settles it."""

    def __init__(self, scheduler: FrontierScheduler) -> None:
        self.scheduler = scheduler
        self.redis: Any = scheduler.state.redis
        self.keys = scheduler.state.keys
        self.keeper = LeaseKeeper.from_crawler(scheduler.crawler)
        self.keeper.scheduler = scheduler
        self.slot: Any = scheduler.crawler.engine._slot  # which all requests have left already

    async def lease(self, deliveries: int = 0, **meta: Any) -> Response:
        """Lease a request; return a response to it."""
        await rule(self.scheduler.state, ("museum", 200))
        request = Request(URL, meta={IDENTIFIER: "a", SOURCE: "museum", **meta})
        await put(self.scheduler.state, [codec.encode(request, self.scheduler.spider, deliveries=deliveries)])

        async def next_request() -> Request | None:
            await self.scheduler.queue.fill()
            return self.scheduler.next_request()

        return Response(URL, request=await until_async(next_request))

    async def flush(self) -> None:
        """Send what has ended."""
        self.keeper.settle_ended()
        await self.scheduler.queue.flush()

    async def events(self, stream: str) -> list[dict[str, Any]]:
        await self.flush()
        return [json.loads(fields[b"event"]) for _, fields in await self.redis.xrange(stream)]

    async def dead(self) -> list[tuple[str, int]]:
        await self.flush()
        letters = await self.redis.xrange(self.keys.dead)
        return [(fields[b"reason"].decode(), int(fields[b"deliveries"])) for _, fields in letters]

    async def failed(self) -> list[dict[str, Any] | None]:
        """Return the events `failed`, as readers make them."""
        await self.flush()
        found = await self.redis.xrange(self.keys.failed_events)
        return [event_of(EventEntry(self.keys.failed_events, at.decode(), fields)) for at, fields in found]

    async def delayed(self) -> list[bytes]:
        await self.flush()
        found = await self.redis.zrange(self.keys.delayed_of + "museum", 0, -1)
        return [entry.partition(b"\n")[2] for entry in found]

    async def statuses(self) -> list[bytes]:
        found: list[bytes] = await self.redis.lrange(self.keys.statuses_of + "museum", 0, -1)
        return found

    async def totals(self) -> dict[str, int]:
        await self.flush()
        found = await self.redis.hgetall(self.keys.totals)
        return {name.decode(): int(count) for name, count in found.items()}


@pytest.fixture
def case(scheduler: FrontierScheduler) -> Case:
    return Case(scheduler)


async def test_an_image_and_link_rot_emit_their_events(case: Case) -> None:
    response = await case.lease()
    image = ImageEvent(**WHO, width=1, height=2, filesize=3, compression_quality=None, format="PNG",
                       content_type=None, sha256="x", thumbnail="y", fetched_at="z", status=200,
                       **FETCH)  # fmt: skip
    case.keeper.item_scraped(image, response)
    case.keeper.item_scraped(image, response)  # a second item of the same lease has no effect
    assert [event["identifier"] for event in await case.events(case.keys.image_events)] == ["a"]
    case.keeper.item_scraped(LinkRotEvent(**WHO, status=410, time="z", **FETCH), await case.lease())
    assert [event["status"] for event in await case.events(case.keys.link_rot_events)] == [410]
    assert await case.statuses() == [b"410", b"200"]
    assert await case.redis.hget(case.keys.counters, "outstanding") == b"0"


class Marks:
    """A spider middleware of a user's."""

    async def process_spider_output(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for item in result:
            yield replace(item, identifier="marked")


def breaks(response: Response) -> None:
    raise RuntimeError("broken")


class Breaks:
    """One that fails."""

    process_spider_input = staticmethod(breaks)


@pytest.mark.parametrize(
    ("middlewares", "callback", "expected"),
    [({}, None, ["a"]), ({Marks: 100}, None, ["marked"]), ({}, breaks, []), ({Breaks: 100}, None, [])],
)
async def test_items_pass_the_spider_middlewares_of_users(
    redis_url: str, middlewares: dict[type, int], callback: Any, expected: list[str]
) -> None:
    settings: Any = {"SPIDER_MIDDLEWARES": middlewares, "ITEM_PIPELINES": {}}
    async with open_scheduler(redis_url, **settings) as scheduler:
        crawler, case = scheduler.crawler, Case(scheduler)
        ImagesSpider.update_settings(crawler.settings)
        crawler.logformatter = LogFormatter.from_crawler(crawler)
        response = await case.lease()
        assert response.request is not None
        response.status, response.request.callback = 404, callback
        scraper = _OneItemScraper(crawler)
        await scraper.open_spider_async()
        await scraper._scrape(response, response.request)
        assert [event["identifier"] for event in await case.events(case.keys.link_rot_events)] == expected
        assert [entry[1] for entry in await case.delayed()] == [1] * (not expected)  # with a delivery counted


async def test_a_retry_keeps_its_deliveries(case: Case) -> None:
    """What kills workers, and fails in between, is dead at its last delivery all the same."""
    case.keeper.item_scraped(TIMEOUT, await case.lease(deliveries=2))
    assert [entry[1] for entry in await case.delayed()] == [2]


async def test_a_dead_letter_is_an_event_too(case: Case) -> None:
    facts = ImageFacts(
        width=7, height=9, filesize=5, compression_quality=80, format="JPEG", sha256="00", exif=None
    )
    response = await case.lease(retries=1, redirect_urls=["http://museum/first.jpg"])
    failure = Failure(outcome=UNREADABLE, reason="unreadable", status=200, facts=facts)
    case.keeper.item_scraped(failure, response)
    case.keeper.item_scraped(failure, response)  # the lease is gone: nothing more
    [event] = await case.failed()
    assert event is not None
    time, image = datetime.fromisoformat(event.pop("time")), event.pop("image")
    event.pop("probe", None)  # of a plug-in
    assert abs(time - datetime.now(UTC)) < timedelta(minutes=10)
    assert (image["width"], image["height"], image["sha256"]) == (7, 9, "00")
    assert event == {
        "event": "failed", "identifier": "a", "url": "http://museum/first.jpg", "source": "museum",
        "spider": "images", "reason": "unreadable (after 2 attempts)", "kind": "decode", "status": 200,
        "final_url": URL, "redirects": 1, "attempts": 2, "fetch_s": None, "extra": None, "seed": None,
    }  # fmt: skip


A_BUG = Failure(outcome=of_exception(RuntimeError()), reason="a bug")


@pytest.mark.parametrize(
    ("item", "found", "expected"),
    [
        (failure(403), {"depth": 1}, b"1"),
        (failure(403), {FOUND: {"found_on": "http://a/"}}, b"1"),
        (failure(403), {"depth": 0}, None),
        (A_BUG, {"depth": 3}, None),
    ],
)
async def test_dead_letters_of_what_was_found_do_not_count_towards_the_bound_but_faults_of_ours_do(
    case: Case, item: Failure, found: dict[str, Any], expected: bytes | None
) -> None:
    case.keeper.item_scraped(item, await case.lease(**found))
    assert await case.dead() == [(item.reason, 0)]
    assert await case.redis.hget(case.keys.dead_sources, "") == expected


async def test_a_link_to_what_is_no_page_is_done_without_an_event(case: Case) -> None:
    failure = Failure(NOT_HTML, "not HTML", status=200, content_type="application/pdf")
    case.keeper.item_scraped(failure, await case.lease(depth=1))
    assert await case.dead() == []
    assert await case.redis.hget(case.keys.counters, "outstanding") == b"0"
    assert await case.statuses() == [b"200"]
    assert (await case.totals())["not_html_pdf"] == 1


@pytest.mark.parametrize(("looked_at_again", "expected"), [(False, None), (True, b"1")])
async def test_a_seed_that_is_no_page_is_a_dead_letter(
    case: Case, looked_at_again: bool, expected: bytes | None
) -> None:
    response = await case.lease()
    response.meta.update({REVISIT: []} if looked_at_again else {})
    case.keeper.item_scraped(Failure(NOT_HTML, "not HTML: image/png", status=200), response)
    assert await case.dead() == [("not HTML: image/png", 0)]
    assert await case.redis.hget(case.keys.counters, "outstanding") == b"0"
    assert await case.redis.hget(case.keys.dead_sources, "") == expected
    totals = await case.totals()
    assert (totals["failed"], totals["fetched"]) == (1, 1)
    assert not [name for name in totals if name.startswith("not_html")]


async def test_a_passing_failure_is_retried_from_the_seeds_url(case: Case) -> None:
    response = await case.lease(redirect_urls=["http://museum.example/first.jpg"], redirect_times=1)
    case.keeper.item_scraped(TIMEOUT, response)
    (entry,) = await case.delayed()
    again = codec.decode(entry, case.scheduler.spider)
    assert again.url == "http://museum.example/first.jpg"
    assert again.meta[RETRIES] == 1
    assert "redirect_times" not in again.meta
    assert await case.statuses() == [b"timeout"]
    assert await case.redis.hget(case.keys.counters, "outstanding") == b"1"


async def test_a_pipelines_exception_returns_the_request_with_a_delivery(case: Case) -> None:
    full = failure_with(OSError("disk full"))
    case.keeper.item_error(object(), await case.lease(), full)
    (entry,) = await case.delayed()
    assert entry[1] == 1
    assert await case.statuses() == []
    case.keeper.item_error(object(), await case.lease(deliveries=4), full)
    assert await case.dead() == [("internal fault, delivery 5: OSError: disk full", 5)]


@pytest.mark.parametrize(
    ("outcome", "deliveries", "counted"),
    [(STOPPED, 0, set()), (STORAGE_UNAVAILABLE, 0, {"error_store"}), (INTERNAL_FAULT, 1, {"error_ours"})],
)
async def test_what_is_not_the_sites_fault_goes_back_and_costs_its_source_nothing(
    case: Case, outcome: Outcome, deliveries: int, counted: set[str]
) -> None:
    case.keeper.item_scraped(Failure(outcome=outcome, reason="x"), await case.lease())
    entries = await case.delayed() or await case.redis.lrange(case.keys.queue_of + "0:museum", 0, -1)
    assert [entry[1] for entry in entries] == [deliveries]
    assert await case.statuses() == []
    assert (await case.totals()).keys() & {"error_store", "error_ours", "retried"} == counted
    assert bool(case.keeper.crawler.stats.get_value("store/returned")) == (outcome is STORAGE_UNAVAILABLE)


async def test_a_dropped_item_is_a_dead_letter(case: Case) -> None:
    case.keeper.item_dropped(object(), await case.lease(), ValueError("not wanted"))
    assert await case.dead() == [("dropped: not wanted", 0)]


async def test_a_lease_ends_once_its_request_has_left_the_engine_and_its_finds_are_stored(case: Case) -> None:
    response = await case.lease()
    lease = response.meta[LEASE]
    case.slot.inprogress = {response.request}
    case.keeper.item_scraped(failure(403), response)
    assert await case.dead() == []
    case.slot.inprogress = set()
    lease.unstored = 1
    assert await case.dead() == []
    lease.unstored = 0
    assert await case.dead() == [("status 403", 0)]


async def test_a_request_that_left_the_engine_without_an_item_is_found(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    response = await case.lease()
    case.keeper.response_received(response, response.request)  # type: ignore[arg-type]
    case.keeper.item_scraped({"some": "item"}, response)
    (entry,) = await case.delayed()
    assert entry[1] == 1
    assert "left the engine without an item" in caplog.text
    assert case.scheduler.queue.leases == {}


async def test_what_failed_after_all_is_not_done(case: Case) -> None:
    response = await case.lease()
    case.keeper.item_scraped(failure(403), response)
    case.keeper.item_error(None, response, failure_with(ValueError("bug")))
    assert await case.dead() == []
    (entry,) = await case.delayed()
    assert entry[1] == 1
    assert case.keeper._ends == {}


@pytest.mark.parametrize(("asked", "held"), [(90.0, 90), (1e6, 3600)])
async def test_a_source_that_says_how_long_is_held_for_that_long_up_to_the_cap(
    case: Case, asked: float, held: float
) -> None:
    case.keeper.item_scraped(failure(503, asked), await case.lease())
    await case.flush()
    [found] = await case.scheduler.state.scripts.inspect(["museum"])
    assert held - 60 < found.held_until - found.now <= held
    assert (found.factor, found.why) == (0.5, "status 503")


@pytest.mark.parametrize(
    ("error", "noted", "refusal"),
    [
        (RobotsDisallowed("robots.txt: line 2, Disallow: /"), [], True),
        (RobotsOptOut("opt-out: robots.txt: noai"), [], True),
        (AddressRefused("no"), [], False),
        (RobotsUnreachable("robots.txt: status 500", 9.0), [], False),
        (DownloadTimeoutError(), [b"timeout"], False),
    ],
)
async def test_what_reached_the_site_is_among_its_statuses_and_what_it_forbids_is_marked_among_dead_letters(
    case: Case, error: Exception, noted: list[bytes], refusal: bool
) -> None:
    item = Failure(outcome=of_exception(error), reason="x")
    case.keeper.item_scraped(item, await case.lease(**{RETRIES: 9}))
    await case.flush()
    assert await case.statuses() == noted
    ((_, letter),) = await case.redis.xrange(case.keys.dead)
    assert (b"refusal" in letter) is refusal


async def test_a_time_out_counts_as_a_fetch_that_took_as_long_as_was_waited(case: Case) -> None:
    refused = Failure(outcome=of_exception(DownloadConnectionRefusedError()), reason="x")
    for item, took in ((TIMEOUT, 20.0), (failure(500), 0.3), (refused, 0.001)):  # of the last nothing was fetched
        response = await case.lease()
        response.meta[FETCH_TIME] = took
        case.keeper.item_scraped(item, response)
    found = (await case.totals()).items()
    fetches = {name: count for name, count in found if name.startswith("fetch") and name != "fetched"}
    assert fetches == {"fetch:6": 1, "fetch:15": 1, "fetch_us": 20_300_000}


async def test_errors_are_counted_by_kind_at_each_attempt(case: Case) -> None:
    down = Failure(outcome=STORAGE_UNAVAILABLE, reason="disk full")
    for item, meta in ((TIMEOUT, {}), (TIMEOUT, {RETRIES: 1}), (failure(403), {}), (down, {})):
        case.keeper.item_scraped(item, await case.lease(**meta))
    case.keeper.item_error(None, await case.lease(), failure_with(ValueError("bug")))
    totals = await case.totals()
    counts = {"error_timeout": 2, "error_http_4xx": 1, "error_store": 1, "error_ours": 1}
    of_source = counts_in(await case.redis.hget(case.keys.counts, "museum"))
    for found in (totals, of_source):
        assert {name: count for name, count in found.items() if name.startswith("error_")} == counts
    assert (totals["failed"], totals["retried"]) == (2, 1)


# Failures without a response


def failed(case: Case, response: Response, error: BaseException) -> bool:
    made = failure_with(error)
    made.request = response.request  # type: ignore[attr-defined]
    return case.keeper.failed(response.meta[LEASE], made)


async def test_the_spider_is_told_of_no_failure_of_its_one_item(case: Case) -> None:
    assert failed(case, await case.lease(), DownloadTimeoutError())
    assert len(await case.delayed()) == 1
    assert failed(case, await case.lease(), RobotsDisallowed("robots.txt: line 2"))
    assert await case.dead() == [("robots.txt: line 2", 0)]


async def test_other_spiders_are_told_of_what_is_given_up(case: Case) -> None:
    case.keeper._one_item_each = False
    assert failed(case, await case.lease(), DownloadTimeoutError())  # tried again
    assert not failed(case, await case.lease(), RobotsDisallowed("robots.txt: line 2"))
    gone = await case.lease()
    case.keeper.response_received(gone.replace(status=404), gone.request)  # type: ignore[arg-type]
    assert not failed(case, gone, HttpError(gone.replace(status=404)))
    assert await case.dead() == [("robots.txt: line 2", 0)]
    assert (await case.totals())["link_rot"] == 1
    assert await case.redis.hget(case.keys.counters, "outstanding") == b"1"


async def test_of_other_spiders_responses_bytes_and_items_count(case: Case) -> None:
    case.keeper._one_item_each = False
    for status, items in ((200, 2), (206, 0), (404, 0), (403, 1)):
        response = (await case.lease()).replace(status=status, body=b"123")
        case.keeper.response_received(response, response.request)  # type: ignore[arg-type]
        for number in range(items):
            case.keeper.item_scraped({"number": number}, response)
    await case.flush()
    counts = counts_in(await case.redis.hget(case.keys.counts, "museum"))
    expected = {"fetched": 4, "responses": 2, "bytes": 6, "items": 3, "link_rot": 1, "error_http_4xx": 1}
    assert expected.items() <= counts.items()


async def test_each_result_of_a_site_is_a_sample_in_the_stats(case: Case) -> None:
    for outcome in (of_status(403), of_status(500), UNREADABLE, STORAGE_UNAVAILABLE):
        case.keeper.item_scraped(Failure(outcome, "x", status=200), await case.lease())
    await case.flush()
    stats = case.scheduler.stats
    assert (stats.get_value("circuits/samples/fine"), stats.get_value("circuits/samples/error")) == (1, 2)


async def test_a_signal_tells_of_each_circuit_that_opens_halts_or_resumes(case: Case) -> None:
    crawler, state = case.scheduler.crawler, case.scheduler.state
    response = await case.lease()
    await controls.halt(state, ["earlier"], "operator")
    fence = await state.scripts.lead("leader", ready=True)
    assert fence is not None
    await state.scripts.watch(fence)  # before the worker has begun to listen
    told: list[tuple[str, str, str, str]] = []

    names = {getattr(circuits, f"circuit_{name}"): name for name in ("opened", "halted", "resumed")}

    def note(signal: object, source: str, reason: str, by: str, **_: Any) -> None:
        told.append((names[signal], source, reason, by))

    async def opened(**more: Any) -> None:
        note(**more)

    for signal, name in names.items():
        crawler.signals.connect(opened if name == "opened" else note, signal=signal)
    extension = Circuits.from_crawler(crawler)
    extension.spider_opened()
    await until_async(lambda: extension._last)
    for number in range(6):
        case.keeper.item_scraped(Failure(of_status(403), "x", status=403), response)
        await case.flush()
        if number < 5:
            response = await case.lease()
    await until_async(lambda: told)
    await controls.halt(state, ["museum"], "a test")
    await state.scripts.watch(fence)
    await controls.resume(state, ["museum"], "a test")
    await state.scripts.watch(fence)
    await until_async(lambda: len(told) > 2)
    await extension.spider_closed()
    worker = f"worker {state.worker_id}"
    assert told == [
        ("opened", "museum", "6 errors of 6 requests in 60 s", worker),
        ("halted", "museum", "an operator halted it", "operator, a test"),
        ("resumed", "museum", "an operator resumed it", "operator, a test"),
    ]
    stats = case.scheduler.stats
    assert [stats.get_value(f"circuits/{name}") for name in ("opened", "halted", "resumed")] == [1, 1, 1]
