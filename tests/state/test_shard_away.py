"""What a worker does for the other shards while one is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
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
from crawlproject.frontier.errback import LeasedErrback
from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.middlewares.found import FoundRequestsMiddleware
from crawlproject.models import Fetch, FetchedPage, ReadPage
from crawlproject.pipelines.found import FoundPipeline
from crawlproject.state.shards import shard_of
from tests.conftest import scheduler_for
from tests.pages.reading import read
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
    one.crawler.engine._slot.inprogress = set()  # type: ignore[union-attr]
    await maybe_deferred_to_future(one.open(one.crawler.spider))
    await one._loops.stop(grace=5)
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

    middleware = FoundRequestsMiddleware.from_crawler(worker.crawler)
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


async def test_only_the_page_that_led_to_a_shard_waits_while_that_is_away(
    worker: FrontierScheduler, keeper: LeaseKeeper, cluster: Cluster
) -> None:
    here, there = places(cluster, worker)
    waits, other = [await crawled(worker, keeper, domain) for domain in domains(here)[:2]]
    with without(cluster, worker.state.shards[there]):
        await callback(worker, waits, f"http://{domains(there)[0]}/a", f"http://{domains(here)[2]}/b")
        await callback(worker, other, f"http://{domains(here)[3]}/c")
        with pytest.raises((RedisError, OSError)):
            await worker._end_leases(there)
        await worker._end_leases(here)
        assert [lease.source for lease in worker.queue.leases.values()] == [domains(here)[0]]
        assert await counted(worker, here) == 3  # the page, and what was found that is of this shard
        await put(worker, domains(here)[4])
        assert (await worker.queue.fill(here)).grants
    await until_async(lambda: _stored(worker, there))
    await worker._end_leases(here)
    assert waits.request.meta["lease"].id not in worker.queue.leases  # type: ignore[union-attr]
    assert await counted(worker, there) == 1


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
    worker: FrontierScheduler, keeper: LeaseKeeper, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = places(cluster, worker)
    page = await crawled(worker, keeper, domains(here)[0])
    both = [await crawled(worker, keeper, name) for name in domains(there)[:2]]
    with without(cluster, worker.state.shards[there]):
        await callback(worker, page, f"http://{both[0].url[7:]}/a")
        await callback(worker, page, f"http://{domains(here)[1]}/a")
        with caplog.at_level(logging.ERROR):
            await maybe_deferred_to_future(worker.close("shutdown"))
        assert "1 requests could not be stored" in caplog.text
        assert "Redis fails at shutdown" in caplog.text
        state = worker.state.shards[here]
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


async def test_of_pages_only_those_with_links_to_a_shard_wait_while_that_is_away(
    worker: FrontierScheduler, keeper: LeaseKeeper, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a digest of its text would put a page: and of those that wait one at a time asks that shard."""
    here, there = places(cluster, worker)
    found = FoundPipeline(worker.crawler)
    found.open_spider()
    pages = [await crawled(worker, keeper, domain) for domain in domains(here)[:8]]
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
        away = [
            asyncio.create_task(found.process_item(page(one, f"http://{domains(there)[0]}/{number}")))
            for number, one in enumerate(pages[:4])
        ]
        done, _ = await asyncio.wait(away, timeout=2)
        assert not done
        most = 0
        others = [
            found.process_item(page(one, f"http://{domains(here)[9]}/{number}"))
            for number, one in enumerate(pages[4:])
        ]
        ended = await asyncio.wait_for(asyncio.gather(*others), 5)
        assert all(isinstance(one, ReadPage) and one.is_new for one in ended)
        await asyncio.sleep(2)
        assert most == 1
    assert all(isinstance(one, ReadPage) and one.is_new for one in await asyncio.gather(*away))
    assert await counted(worker, there) == 4


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
        await new._loops.stop(grace=5)
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
