"""The scheduler: what the whole crawls of tests/test_crawl.py do not show."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from scrapy import Request
from scrapy.utils.defer import maybe_deferred_to_future

from crawlproject.errors import ConfigError, RedisUnavailable
from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.models import LEASE, SOURCE
from crawlproject.state.clock import local_time
from tests.conftest import open_scheduler, scheduler_for, stop_tasks
from tests.state.calls.calls import join, lead, lease, outstanding, source_of
from tests.waiting import until_async


async def rule(scheduler: FrontierScheduler, **rates: float) -> None:
    fence = await lead(scheduler.state)
    # There is no server to fetch a robots.txt from.
    options = '{"robots": "ignore", "hosts": ["museum.example", "cdn.test"]}'
    exempt = dict.fromkeys(("museum", "museum.example", "cdn.test"), options)
    claims = {"museum": " museum.example ", "museum.example": " museum.example ", "cdn.test": " cdn.test "}
    known = dict.fromkeys(exempt, 0.2) | rates
    rows = [(name, rate, rate) for name, rate in known.items()]
    await scheduler.state.scripts.set_rates(fence, rows, {}, exempt, claims)


async def leased(scheduler: FrontierScheduler) -> Request:
    """Lease one request and return it at its slot; one that misses that, on a busy machine, is leased again."""

    async def at_its_slot() -> Request | None:
        if not scheduler.queue.leases:
            await scheduler.queue.fill()
        return scheduler.next_request()

    request: Request = await until_async(at_its_slot)
    return request


async def stored(scheduler: FrontierScheduler, count: int) -> None:
    """Wait until Redis has `count` requests."""

    async def all_there() -> bool:
        return await outstanding(scheduler.state) == count

    await until_async(all_there)


async def test_a_request_of_a_callback_is_stored_and_comes_back(scheduler: FrontierScheduler) -> None:
    await rule(scheduler)
    request = Request("http://museum.example/a.jpg", meta={"identifier": "a"}, headers={"Referer": "y"})
    assert scheduler.enqueue_request(request)
    assert scheduler.enqueue_request(request)  # noted, and found to be a duplicate when it is stored
    await stored(scheduler, 1)
    back = await leased(scheduler)
    assert (back.url, back.headers["Referer"], back.meta[SOURCE]) == (request.url, b"y", "museum.example")
    await until_async(lambda: scheduler.stats.get_value("frontier/duplicates") == 1)
    assert scheduler.has_pending_requests()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"meta": {"identifier": "\ud800"}}, "cannot be stored"),
        ({"cb_kwargs": {"a": 1}}, 'to use it, declare stored_attributes = frozenset({"cb_kwargs"})'),
    ],
)
async def test_what_cannot_be_stored_is_refused_in_one_line(
    scheduler: FrontierScheduler, more: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert not scheduler.enqueue_request(Request("http://museum.example/", **{"meta": {"identifier": "a"}} | more))
    (line,) = caplog.records
    assert said in line.message
    assert scheduler.stats.get_value("frontier/not_stored") == 1


@pytest.mark.parametrize(
    ("location", "payer"),
    [("http://images.museum.example/b.jpg", "museum"), ("http://cdn.test/b.jpg", "cdn.test")],
)
async def test_a_redirect_is_leased_again_from_the_source_it_leads_to(
    scheduler: FrontierScheduler, location: str, payer: str
) -> None:
    await rule(scheduler, museum=50)
    meta = {"identifier": "a", SOURCE: "museum"}
    scheduler.enqueue_request(Request("http://museum.example/a.jpg", meta=meta))
    await stored(scheduler, 1)
    request = await leased(scheduler)
    redirected = request.replace(url=location, meta={**request.meta, "redirect_urls": [request.url]})
    assert scheduler.enqueue_request(redirected)
    await stop_tasks(scheduler)  # so that it does not lease the request itself
    await scheduler._end_leases()
    await join(scheduler.state, "other")
    (grant,) = (await lease(scheduler.state, worker="other")).grants
    assert source_of(grant) == payer
    assert location.encode() in grant.entry
    assert LEASE.encode() not in grant.entry
    assert await scheduler.state.redis.hget(scheduler.state.keys.counters, "outstanding") == b"1"


async def test_nothing_is_leased_while_bodies_pile_up(
    scheduler: FrontierScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where storage is slow: Scrapy backs out by SCRAPER_SLOT_MAX_ACTIVE_SIZE."""
    engine: Any = scheduler.crawler.engine
    piled_up = [True]
    monkeypatch.setattr(engine, "needs_backout", lambda: piled_up, raising=False)
    engine.scraper.slot = "open"
    await rule(scheduler, museum=50)
    scheduler.enqueue_request(Request("http://museum.example/a.jpg", meta={"identifier": "a", SOURCE: "museum"}))
    await stored(scheduler, 1)
    await asyncio.sleep(1)
    assert not scheduler.queue.leases
    piled_up.clear()
    await until_async(lambda: scheduler.queue.leases)


async def test_a_worker_that_joins_others_leases_nothing_while_its_clock_may_be_wrong(
    scheduler: FrontierScheduler, redis_url: str
) -> None:
    assert scheduler.state.clock.valid_from < local_time()
    async with open_scheduler(redis_url) as second:
        assert second.state.clock.valid_from > local_time()


async def test_closing_gives_back_waiting_leases_and_deregisters(redis_url: str) -> None:
    one = scheduler_for(redis_url)
    assert one.crawler.spider is not None
    await maybe_deferred_to_future(one.open(one.crawler.spider))
    await rule(one, museum=20)
    for name in "abc":
        meta = {"identifier": name, SOURCE: "museum"}
        one.enqueue_request(Request(f"http://museum.example/{name}", meta=meta))
    await stored(one, 3)
    await one.queue.fill()
    assert len(one) == 3
    await maybe_deferred_to_future(one.close("shutdown"))
    redis: Any = one.state.redis
    assert await redis.zscore(one.state.keys.workers, one.state.worker_id) is None
    assert await redis.llen(one.state.keys.queue_of + "0:museum") == 3
    assert await redis.hget(one.state.keys.counters, "outstanding") == b"3"
    await one.state.close()


async def test_a_seed_taken_by_a_timed_out_call_is_read(scheduler: FrontierScheduler) -> None:
    await rule(scheduler, museum=20)
    await asyncio.sleep(0.1)
    redis: Any = scheduler.state.redis
    keys = scheduler.state.keys
    # A Redis that hung carries out earlier requests, though the client no longer waits for the reply.
    await redis.lpush(keys.processing_of + scheduler.state.worker_id, "http://museum.example/a.jpg")
    await stored(scheduler, 1)


async def test_the_frontier_is_not_flushed(scheduler: FrontierScheduler) -> None:
    with pytest.raises(ConfigError, match="CRAWL_NAMESPACE"):
        scheduler.flush()


@pytest.mark.parametrize(
    ("named", "value", "sentence"),
    [
        ("redis_key", "other:list", "its seeds are read from images:start_urls"),
        ("download_delay", 0.5, "which would delay requests beyond the moment when they may be sent"),
        (
            "stored_attributes",
            frozenset({"cb_kwarg"}),
            "'cb_kwarg'.*must be a frozenset of names out of body, call",
        ),
        ("stored_attributes", frozenset("cb_kwargs"), 'such as frozenset\\({"cb_kwargs"}\\)'),
        ("stored_attributes", "cb_kwargs", "stored_attributes = 'cb_kwargs': it must be a frozenset"),
    ],
)
async def test_a_spider_that_cannot_be_crawled_with_is_refused(
    redis_url: str, named: str, value: object, sentence: str
) -> None:
    one = scheduler_for(redis_url)
    setattr(one.crawler.spider, named, value)
    with pytest.raises(ConfigError, match=sentence):
        await one._open(one.crawler.spider)  # type: ignore[arg-type]
    await maybe_deferred_to_future(one.close("finished"))


async def test_without_redis_it_does_not_open_and_still_closes() -> None:
    one = scheduler_for("redis://127.0.0.1:1/0")
    assert one.crawler.spider is not None
    with pytest.raises(RedisUnavailable, match=r"127\.0\.0\.1:1"):
        await one._open(one.crawler.spider)
    await maybe_deferred_to_future(one.close("finished"))
