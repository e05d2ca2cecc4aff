"""What a worker does for the other shards while one is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import pytest_asyncio
from redis.exceptions import RedisError
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.python.failure import Failure

from crawlproject import engine
from crawlproject.errors import RedisUnavailable
from crawlproject.extensions.lease_keeper import LeaseKeeper
from crawlproject.frontier import scheduler as frontier_scheduler
from crawlproject.frontier.discovery import LISTED, Discovered, Discovery, Link, ShardsScripts
from crawlproject.frontier.dupefilter import digest_of
from crawlproject.frontier.errback import LeasedErrback
from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.middlewares.callback_requests import CallbackRequestsMiddleware
from crawlproject.models import Fetch, FetchedPage, ReadPage
from crawlproject.pipelines.found import FoundPipeline
from crawlproject.state.client import State
from crawlproject.state.crossings import Carrier
from crawlproject.state.found_elsewhere import bring, send_links, send_requests
from crawlproject.state.scripts import Budget, LinkGroup, NewRequest
from crawlproject.state.shard_status import shard_status
from crawlproject.state.shards import shard_of
from tests.conftest import scheduler_for, stop_tasks
from tests.leading import lead
from tests.pages.reading import read
from tests.robots_copies import keep_copy
from tests.state.servers import Cluster
from tests.state.test_shard_faces import without
from tests.state.test_shards_worker import put
from tests.waiting import until_async

SHARDS = 4


@pytest_asyncio.fixture
async def worker(cluster_url: str) -> AsyncIterator[FrontierScheduler]:
    """An open scheduler that does nothing by itself, of a spider whose callbacks yield requests."""
    one = scheduler_for(cluster_url, CRAWL_SHARDS=str(SHARDS))
    assert one.crawler.spider is not None
    one.crawler.spider.one_item_each = False  # type: ignore[attr-defined]
    await maybe_deferred_to_future(one.open(one.crawler.spider))
    await stop_tasks(one)
    for shard in one.state.shards:
        await shard.scripts.lead("leader", ready=True)
        await shard.redis.persist(shard.keys.leader)
        await shard.redis.persist(shard.keys.pulse)
    yield one
    await maybe_deferred_to_future(one.close("finished"))
    await one.state.close()


@pytest_asyncio.fixture
async def keeper(worker: FrontierScheduler) -> AsyncIterator[LeaseKeeper]:
    """What settles the worker's leases, when told to."""
    one = LeaseKeeper.from_crawler(worker.crawler)
    one.spider_opened()
    await one._loops.stop()
    yield one


def domains(shard: int) -> list[str]:
    """Return domains whose sources are in a shard."""
    return [name for name in (f"s{number}.example" for number in range(99)) if shard_of(name, SHARDS) == shard]


async def crawled(worker: FrontierScheduler, keeper: LeaseKeeper, domain: str) -> Response:
    """Return the response to a request of a domain, which the spider's callback is about to get."""
    await put(worker, domain)
    shard = shard_of(domain, SHARDS)
    await keep_copy(worker.state.shards[shard], f"http://{domain}/robots.txt", domain)  # else a lease waits for it

    async def next_request() -> Request | None:
        await worker.queue.flush(shard=shard)
        if worker.queue.room > 0 and not len(worker.queue):
            await worker.queue.fill(shard)
        return worker.next_request()

    request = await until_async(next_request)
    response = Response(request.url, request=request)
    keeper.response_received(response, request)
    return response


async def callback(worker: FrontierScheduler, response: Response, *urls: str) -> None:
    """Have the callback of a response yield requests."""

    async def found() -> AsyncIterator[Any]:
        for url in urls:
            yield Request(url, callback=worker.spider.parse, meta={"depth": 1})

    middleware = CallbackRequestsMiddleware.from_crawler(worker.crawler)
    async for request in middleware.process_spider_output(response, found()):
        assert worker.enqueue_request(request)


async def counted(worker: FrontierScheduler, shard: int) -> int:
    """Return how many requests of a shard are not at their end."""
    state = worker.state.shards[shard]
    return int(await state.redis.get(state.keys.outstanding) or 0)


def places(cluster: Cluster, worker: FrontierScheduler) -> tuple[int, int]:
    """Return two shards that are on different masters, the second one not the first of all."""
    here = cluster.owner_of(worker.state.shards[0].keys.rates)
    return 0, next(s.number for s in worker.state.shards if cluster.owner_of(s.keys.rates) is not here)


async def carry_all(worker: FrontierScheduler, spider: str = "images") -> None:
    """Bring all that is in outboxes, as the tasks of workers do."""
    shards = worker.state.beside(spider).shards
    for shard, number in list(product(shards, range(SHARDS))) * 2:  # what has come to the wrong one goes on
        await Carrier.of_shard(shard).carry(number)
    assert not [key for shard in shards for key in await _keys(shard, shard.keys.outbox_of)]
    assert [await shard.redis.hget(shard.keys.crossings, "found") for shard in shards].count(b"0") >= 1


async def _keys(shard: State, prefix: str) -> list[bytes]:
    redis: Any = shard.redis
    return [key for key in await redis.keys(f"{prefix}*") if key.startswith(prefix.encode())]


async def test_a_page_that_led_to_a_shard_ends_while_that_is_away(
    worker: FrontierScheduler, keeper: LeaseKeeper, cluster: Cluster
) -> None:
    """What was found waits in the shard of the page, survives the worker, and keeps the spider open."""
    here, there = places(cluster, worker)
    page = await crawled(worker, keeper, domains(here)[0])
    found = [f"http://{domains(there)[0]}/{number}" for number in range(450)]
    with without(cluster, worker.state.shards[there]):
        await callback(worker, page, *found, f"http://{domains(here)[2]}/b")
        with pytest.raises((RedisError, OSError)):
            await worker._end_leases(there)
        await worker._end_leases(here)
        assert not worker.queue.leases
        assert not worker._unstored
        assert await counted(worker, here) == 1  # what was found that is of this shard
    state = worker.state.shards[here]
    assert not (await state.scripts.idleness(halted_too=False)).is_idle
    assert (await shard_status(state)).sent == 450
    await carry_all(worker)
    assert await counted(worker, there) == 450
    await carry_all(worker)
    assert await counted(worker, there) == 450


async def test_pages_of_a_shard_that_is_away_too_hold_up_no_others(
    worker: FrontierScheduler, keeper: LeaseKeeper, cluster: Cluster
) -> None:
    """A node that is away has several shards: what their pages led to waits, that of other pages goes its way."""
    owners = [cluster.owner_of(shard.keys.rates) for shard in worker.state.shards]
    there = next(number for number in range(1, SHARDS) if owners.index(owners[number]) < number)
    beside = owners.index(owners[there])
    here = next(number for number in range(SHARDS) if owners[number] is not owners[there])
    pages = [await crawled(worker, keeper, domains(shard)[0]) for shard in (beside, here)]
    with without(cluster, worker.state.shards[there]):
        for one in pages:
            await callback(worker, one, f"http://{domains(there)[0]}/{one.url[7:]}")
        with pytest.raises((RedisError, OSError)):
            await worker._end_leases(there)
        await worker._end_leases(here)
        assert [lease.shard for lease in worker.queue.leases.values()] == [beside]
        assert worker._unstored == 1
    await until_async(lambda: _stored(worker, there))
    await worker._end_leases(beside)
    assert not worker.queue.leases
    await carry_all(worker)
    assert await counted(worker, there) == 2


async def test_with_as_much_on_its_way_as_may_be_a_page_waits_for_what_its_callback_yields(
    worker: FrontierScheduler, keeper: LeaseKeeper, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = places(cluster, worker)
    state = worker.state.shards[here]
    monkeypatch.setattr(state, "bounds", replace(state.bounds, overflow_maxlen=3))
    fits, waits, other = [await crawled(worker, keeper, domain) for domain in domains(here)[:3]]
    with without(cluster, worker.state.shards[there]):
        for page, count in ((fits, 3), (waits, 2)):
            await callback(worker, page, *(f"http://{domains(there)[count]}/{number}" for number in range(count)))
            with pytest.raises((RedisError, OSError)):
                await worker._end_leases(there)
        await callback(worker, other, f"http://{domains(here)[3]}/c")
        await worker._end_leases(here)
        assert [lease.source for lease in worker.queue.leases.values()] == [domains(here)[1]]
        await put(worker, domains(here)[4])
        assert (await worker.queue.fill(here)).grants
    await until_async(lambda: _stored(worker, there))
    await worker._end_leases(here)
    assert waits.request.meta["lease"].id not in worker.queue.leases  # type: ignore[union-attr]
    await carry_all(worker)
    assert await counted(worker, there) == 5


async def test_what_an_errback_or_a_pipeline_finds_is_stored_before_its_page_ends(
    worker: FrontierScheduler, keeper: LeaseKeeper, cluster: Cluster
) -> None:
    here, there = places(cluster, worker)
    by_errback, by_pipeline = domains(there)[:2]
    failed = await crawled(worker, keeper, domains(here)[0])
    lease = failed.request.meta["lease"]  # type: ignore[union-attr]

    def own(failure: Failure) -> Any:
        yield Request(f"http://{by_errback}/a", callback=worker.spider.parse)
        yield {"an": "item"}

    errback = LeasedErrback(own, lease, lambda *_: False)
    failure = Failure(ValueError())  # type: ignore[no-untyped-call]
    found = [one async for one in errback(failure)]
    assert found.pop() == {"an": "item"}
    assert worker.enqueue_request(found[0])
    assert "led_by" not in str(worker._new[there][0].request.entry)
    start = Request(f"http://{by_pipeline}/s", callback=worker.spider.parse, meta={"is_start_request": True})
    assert worker.enqueue_request(start)
    assert lease.unstored == 1
    assert worker.enqueue_request(Request(f"http://{by_pipeline}/a", callback=worker.spider.parse))
    assert lease.unstored == 2
    await worker._end_leases(here)
    assert lease.id in worker.queue.leases
    await worker._end_leases(there)
    await worker._end_leases(here)
    assert not worker.queue.leases
    assert await counted(worker, there) == 3


async def test_a_worker_leases_nothing_while_too_much_of_what_it_has_found_waits(
    worker: FrontierScheduler,
    keeper: LeaseKeeper,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(frontier_scheduler, "_MOST_NEW", 3)
    monkeypatch.setattr(engine, "is_busy", lambda _: False)
    here, there = places(cluster, worker)
    page = await crawled(worker, keeper, domains(here)[0])
    await put(worker, domains(here)[1])
    await callback(worker, page, *(f"http://{domains(there)[0]}/{number}" for number in range(4)))
    await worker._lease(here)
    assert len(worker.queue.leases) == 1
    assert "more than 3 requests wait to be stored, most of them in shard" in caplog.text
    await worker._end_leases(there)
    await worker._lease(here)
    assert [lease.source for lease in worker.queue.leases.values()] == [domains(here)[1]]


async def test_a_worker_that_closes_gives_back_a_page_that_waits(
    worker: FrontierScheduler,
    keeper: LeaseKeeper,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    here, there = places(cluster, worker)
    state = worker.state.shards[here]
    monkeypatch.setattr(state, "bounds", replace(state.bounds, overflow_maxlen=0))
    page = await crawled(worker, keeper, domains(here)[0])
    both = [await crawled(worker, keeper, name) for name in domains(there)[:2]]
    with without(cluster, worker.state.shards[there]):
        await callback(worker, page, f"http://{both[0].url[7:]}/a")
        await callback(worker, page, f"http://{domains(here)[1]}/a")
        with caplog.at_level(logging.ERROR):
            await maybe_deferred_to_future(worker.close("shutdown"))
        assert "1 requests could not be stored" in caplog.text
        assert "Redis fails at shutdown" in caplog.text
        assert await state.redis.llen(state.keys.queue_of + f"0:{domains(here)[0]}") == 1
        assert await state.redis.llen(state.keys.queue_of + f"0:{domains(here)[1]}") == 1


def page(response: Response, *links: str) -> FetchedPage:
    """Return the item of a page with links that has a text of its own."""
    shown = "".join(f'<a href="{link}">x</a>' for link in links) + f"<p>About {response.url}</p>"
    fetch = Fetch(final_url=response.url, redirects=0, attempts=1, fetch_s=0.1)
    return FetchedPage(
        response.url,
        "",
        0,
        f"domain:{links[0].split('/')[2]}",
        None,
        "",
        fetch,
        response,
        page=read(shown, url=response.url),
        body=b"x",
    )


async def test_pages_with_links_to_a_shard_end_while_that_is_away(
    worker: FrontierScheduler, keeper: LeaseKeeper, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call at a time asks that shard. Links that many pages have are on their way once."""
    here, there = places(cluster, worker)
    found = FoundPipeline(worker.crawler)
    found.open_spider()
    pages = [await crawled(worker, keeper, domain) for domain in domains(here)[:8]]
    own = await crawled(worker, keeper, domains(there)[1])
    shared = f"http://{domains(there)[0]}/all"
    with without(cluster, worker.state.shards[there]):
        scripts, asked, most = worker.state.shards[there].scripts, 0, 0
        discover = scripts.discover

        async def counted_discover(*args: Any, **options: Any) -> Any:
            nonlocal asked, most
            asked += 1
            most = max(most, asked)
            try:
                return await discover(*args, **options)
            finally:
                asked -= 1

        monkeypatch.setattr(scripts, "discover", counted_discover)
        waits = asyncio.create_task(found.process_item(page(own, f"http://{domains(there)[0]}/own")))
        with pytest.raises((RedisError, OSError)):
            await found.links.admit([Link(shared)], page_in=here)
        await asyncio.sleep(1.1)  # by then it may be back
        most = 0
        ended = await asyncio.wait_for(
            asyncio.gather(
                *(
                    found.process_item(page(one, f"http://{domains(there)[0]}/{number}", shared))
                    for number, one in enumerate(pages)
                )
            ),
            20,
        )
        assert all(isinstance(one, ReadPage) and one.is_new for one in ended)
        assert most == 1
        assert not waits.done()  # its own shard has its lease, and is away
        assert worker.stats.get_value("links/sent_to_absent_shards") <= 8 + 8
        links = [Link(shared)]  # which the worker knows to be on its way
        assert await found.links.admit(links, page_in=here) == Discovered(known=1)
    assert isinstance(await asyncio.wait_for(waits, 20), ReadPage)
    await carry_all(worker)
    assert await counted(worker, there) == 1 + 1 + 8 + 1  # the page, its link, those of the others


async def test_links_on_their_way_do_not_count_as_stored(
    worker: FrontierScheduler, keeper: LeaseKeeper, cluster: Cluster
) -> None:
    """They may find no room where they arrive: so their sitemap is to be read again, though it does not change."""
    here, there = places(cluster, worker)
    found = FoundPipeline(worker.crawler)
    found.open_spider()
    url = f"http://{domains(there)[0]}/a"
    item = page(await crawled(worker, keeper, domains(here)[0]), url)
    with without(cluster, worker.state.shards[there]):
        assert not await found._admit(item, found.links, iter([Link(url, LISTED)]))
        assert worker.stats.get_value("links/sent_to_absent_shards") == 1
    await carry_all(worker)
    assert await found._admit(item, found.links, iter([Link(url, LISTED)]))


async def test_links_for_another_spider_wait_beside_its_frontier(
    worker: FrontierScheduler, cluster: Cluster
) -> None:
    """They are under the bounds that were given with them, whoever carries them."""
    here, there = places(cluster, worker)
    others = worker.state.beside("paintings")
    links = Discovery(ShardsScripts(others), others.bounds, most_outstanding=2)
    some = [Link(f"http://{domains(there)[0]}/{number}", LISTED) for number in range(5)]
    with without(cluster, worker.state.shards[there]):
        with pytest.raises((RedisError, OSError)):
            await links.admit(some, page_in=here)
        sitemaps = [Link(f"http://{domains(there)[0]}/map{number}", LISTED) for number in range(3)]
        assert await links.admit(sitemaps, page_in=here, sitemaps=("museum", 1)) == Discovered(sent=3)
        assert await links.admit(some, page_in=here) == Discovered(sent=5)
    assert not await _keys(worker.state.shards[here], worker.state.shards[here].keys.outbox_of)
    await carry_all(worker, "paintings")
    other = others.shards[there]
    assert int(await other.redis.get(other.keys.outstanding) or 0) == 2  # a sitemap, and a page
    assert not await counted(worker, there)


async def test_links_beyond_the_bound_of_what_waits_are_turned_away(
    worker: FrontierScheduler, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = places(cluster, worker)
    state = worker.state.shards[here]
    monkeypatch.setattr(state, "bounds", replace(state.bounds, overflow_maxlen=5))
    links = Discovery(ShardsScripts(worker.state), state.bounds)
    domain = domains(there)[0]
    with without(cluster, worker.state.shards[there]):
        with pytest.raises((RedisError, OSError)):
            await links.admit([Link(f"http://{domain}/a")], page_in=here)
        assert await links.admit((Link(f"http://{domain}/{n}") for n in range(4)), page_in=here) == Discovered(
            sent=4
        )
        found = await links.admit((Link(f"http://{domain}/{n}") for n in range(4, 6)), page_in=here)
        assert found == Discovered(without_room=2)
        assert found is not None
        assert found.uncounted == {"without_room": 2}
        assert await links.admit([Link(f"http://{domain}/7")], page_in=here) == Discovered(without_room=1)
        assert f"in shard {here} of 4 5 links wait for such shards" in caplog.text
        redis: Any = state.redis
        await redis.delete(f"{state.keys.outbox_of}{there}")  # by others: the count is too high now
        again = Discovery(links._scripts, state.bounds)
        assert await again.admit([Link(f"http://{domain}/{n}") for n in range(5)], page_in=here) == Discovered(
            sent=5
        )
    await carry_all(worker)
    assert await counted(worker, there) == 5


async def test_what_was_found_goes_on_to_the_shard_that_the_catalogue_says(worker: FrontierScheduler) -> None:
    """Also if nobody knew when it was sent; each arrives once, however often it is brought."""
    domain, page = domains(1)[0], domains(0)[0]
    source = next(name for name in (f"museum{number}" for number in range(99)) if shard_of(name, SHARDS) == 2)
    here = worker.state.shards[0]
    groups = [
        LinkGroup(name, None, [b"\x01\x00\x01\x80"], [digest_of("", name)], [None]) for name in (domain, page)
    ]
    options = {"high_water": 99, "refuse_unknown": False}
    more = {"overflow_maxlen": 9, "budget": Budget(9, 9, 9, 9), "most_outstanding": None}
    requests = [
        NewRequest(b"\x01\x00\x00\x80", digest_of("", f"{domain}/{n}"), False, None, domain) for n in range(3)
    ]
    assert await send_links(here, 1, groups, {**options, **more, "sitemaps": None}, most=None)
    assert await send_requests(here, 1, requests, options, most=None)
    for shard in worker.state.shards:
        fence = await shard.scripts.lead("leader", ready=True)
        assert fence is not None
        await shard.scripts.set_rates(fence, [(source, 5.0, 5.0)], {domain: source}, {}, {source: f" {domain} "})
    items = await here.scripts.offer(1, count=9)
    assert await bring(here, worker.state.shards[1], items) == items  # a carrier that died then
    for _ in range(2):
        await carry_all(worker)
    assert [await counted(worker, shard.number) for shard in worker.state.shards] == [1, 0, 4, 0]


async def test_what_shards_disagree_about_stays_for_a_while(
    worker: FrontierScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    """After three ways; when they agree it arrives."""
    domain, names = domains(1)[0], [f"museum{number}" for number in range(99)]
    here, *others = worker.state.shards[:3]
    sources = {shard: next(name for name in names if shard_of(name, SHARDS) == shard) for shard in (1, 2)}

    async def say(shard: State, source: str) -> None:
        fence = await lead(shard)
        await shard.scripts.set_rates(fence, [(source, 5.0, 5.0)], {domain: source}, {}, {source: f" {domain} "})

    for shard in others:
        await say(shard, sources[3 - shard.number])
    options = {"high_water": 99, "refuse_unknown": False}
    request = NewRequest(b"\x01\x00\x00\x80", digest_of("", "a"), False, None, domain)
    assert await send_requests(here, 1, [request], options, most=None)
    carrier = Carrier.of_shard(here)
    for number in (1, 2, 1):
        assert len(await here.scripts.offer(number, count=9)) == 1
        await carrier.carry(number)
    for number in range(SHARDS):
        assert await here.scripts.offer(number, count=9) == []
    assert not (await here.scripts.idleness(halted_too=False)).is_idle
    for shard in (here, others[1]):
        await say(shard, sources[2])

    async def is_offered() -> bool:
        return bool(await here.scripts.offer(0, count=9))

    assert await until_async(is_offered)
    await carry_all(worker)
    assert [await counted(worker, shard.number) for shard in worker.state.shards] == [0, 0, 1, 0]
    assert "as the shards disagree whose they are: 1, the first what a page has led to" in caplog.text


async def test_a_request_to_be_stored_seen_or_not_arrives_once(worker: FrontierScheduler) -> None:
    """As with dont_filter, however often it is brought: carriers die, and calls are lost."""
    here, there = worker.state.shards[:2]
    options = {"high_water": 99, "refuse_unknown": False}
    request = NewRequest(b"\x01\x00\x00\x80", digest_of("", "a"), True, None, domains(1)[0])
    for count in (1, 2):
        assert await send_requests(here, 1, [request], options, most=None)
        items = await here.scripts.offer(1, count=9)
        for _ in range(2):  # a carrier that died then
            assert await bring(here, there, items) == items
        assert await there.scripts.receive("shard:0", items, high_water=99, refuse_unknown=False)
        await carry_all(worker)  # what that carrier has not forgotten
        assert await counted(worker, 1) == count


async def test_each_page_has_its_share_of_the_budget_when_its_links_arrive(worker: FrontierScheduler) -> None:
    """Of what good pages have earned each page takes a part, as if it had just been read."""
    here, there = worker.state.shards[:2]
    domain = domains(1)[0]
    redis: Any = there.redis
    await redis.hset(f"{there.keys.counts_of}good_pages", domain, 10)
    options = {"high_water": 99, "refuse_unknown": False, "overflow_maxlen": 99}
    more = {"budget": Budget(1, 2, 99, 9), "most_outstanding": None, "sitemaps": None}
    for page in "ab":
        links = LinkGroup(domain, None, [b"\x01\x00\x01\x80"] * 5)
        links.digests.extend(digest_of("", f"{page}{number}") for number in range(5))
        links.hosts.extend([None] * 5)
        assert await send_links(here, 1, [links], {**options, **more}, most=None)
    await carry_all(worker)
    assert await counted(worker, 1) == (1 + 2) + 2


async def test_a_worker_starts_without_the_node_of_the_layout_if_others_live_that_know_it(
    worker: FrontierScheduler,
    keeper: LeaseKeeper,
    cluster: Cluster,
    cluster_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """That node has the first shard, too. The worker joins it when it is back."""
    _, there = places(cluster, worker)
    assert cluster.owner_of(worker.state.keys.layout) is cluster.owner_of(worker.state.keys.rates)
    new = scheduler_for(cluster_url, CRAWL_SHARDS=str(SHARDS))
    assert new.crawler.spider is not None
    await put(worker, domains(there)[1])
    await put(worker, domains(1)[0])
    with without(cluster, worker.state.shards[0]):
        await maybe_deferred_to_future(new.open(new.crawler.spider))
        await stop_tasks(new)
        assert "the present one was made for" not in caplog.text  # the first shard that answers has its part
        shard = worker.state.shards[there]
        assert await shard.redis.zscore(shard.keys.workers, new.state.worker_id) is not None
        await put(worker, domains(there)[0])

        async def is_leased() -> bool:
            return bool((await new.queue.fill(there)).grants)

        await until_async(is_leased)
        # One that had lapsed in another shard meanwhile may join it again.
        beats = LeaseKeeper.from_crawler(new.crawler)
        beats.spider_opened()
        await beats._loops.stop()
        assert await beats._may_join()
    assert await beats._may_join()
    await maybe_deferred_to_future(new.close("finished"))
    await new.state.close()
    for one in worker.state.shards:
        await one.redis.delete(one.keys.workers)
    with without(cluster, worker.state.shards[0]):
        alone = scheduler_for(cluster_url, CRAWL_SHARDS=str(SHARDS))
        assert alone.crawler.spider is not None
        with pytest.raises(RedisUnavailable, match="no worker of it lives that knows"):
            await maybe_deferred_to_future(alone.open(alone.crawler.spider))


async def _stored(worker: FrontierScheduler, shard: int) -> bool:
    try:
        await worker._end_leases(shard)
    except (RedisError, OSError):
        return False
    return await counted(worker, shard) > 0
