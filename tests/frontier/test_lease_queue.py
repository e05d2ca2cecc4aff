"""The worker's leases, against a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import redis
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.statscollectors import MemoryStatsCollector

from crawlproject.frontier import codec, lease_queue
from crawlproject.frontier.lease_queue import LeaseQueue
from crawlproject.models import LEASE, SOURCE, Lease
from crawlproject.net.resolver import Resolver
from crawlproject.net.send_slot import Passage
from crawlproject.politeness.slots import tolerance
from crawlproject.robots.cache import RobotsCache
from crawlproject.runtime import Shutdown
from crawlproject.spiders.images import ImagesSpider
from crawlproject.state.calls import Scripts, Settlement
from crawlproject.state.client import State
from tests.conftest import Engine
from tests.state.calls.calls import join, lead, put
from tests.waiting import until_async

pytestmark = pytest.mark.judges  # judges milliseconds

EXEMPT = '{"robots": "ignore", "hosts": ["museum.localhost"]}'  # there is no server to fetch a robots.txt from


class Worker:
    """A queue with what surrounds it."""

    def __init__(self, state: State, capacity: int = 64) -> None:
        self.state = state
        self.redis: Any = state.redis
        self.spider = ImagesSpider()
        crawler = Crawler(ImagesSpider)
        crawler.engine = Engine()  # type: ignore[assignment]
        self.stats = MemoryStatsCollector(crawler)
        self.resolver = Resolver(state.config, None)
        self.robots = RobotsCache(crawler, state.config, state, self.resolver, Shutdown(crawler))
        self.queue = LeaseQueue(state, self.spider, capacity, self.stats, lambda: None, self.resolver, self.robots)

    async def ready(self, rate: float = 200.0, options: str = EXEMPT) -> None:
        await join(self.state, self.state.worker_id)
        rows, claims = [("museum", rate, rate)], {"museum": " museum.localhost "}
        await self.state.scripts.set_rates(await lead(self.state), rows, {}, {"museum": options}, claims)

    async def look_up(self) -> None:
        """Look up host and robots.txt beforehand, so that no request is put off until they are known."""
        url = "http://museum.localhost/"
        await self.resolver.prepare([url])
        await until_async(lambda: self.resolver.knows(url))
        assert await self.robots.look_up(url, "museum") is not None

    async def put(self, *names: str, source: str = "museum", deliveries: int = 0) -> None:
        made = (Request(f"http://museum.localhost/{name}", meta={"identifier": name}) for name in names)
        await put(self.state, [codec.encode(one, self.spider, deliveries=deliveries) for one in made], source)

    async def popped(self, count: int) -> list[Request]:
        """Pop until there are `count` requests."""
        return [await until_async(self._popped) for _ in range(count)]

    async def _popped(self) -> Request | None:
        if not len(self.queue):  # slots were missed: this machine is busy
            await self.queue.flush()
            await self.queue.fill()
        return self.queue.pop()

    def stat(self, name: str) -> int:
        return int(self.stats.get_value(name, 0))


async def filled(state: State, *names: str, rate: float = 200.0, capacity: int = 64) -> Worker:
    """Return a worker that holds leases of these requests."""
    worker = Worker(state, capacity)
    await worker.ready(rate)
    await worker.put(*names)
    await until_async(partial(_leases, worker))
    return worker


async def test_requests_come_out_at_their_slots(state: State) -> None:
    worker = await filled(state, "a", "b", "c", rate=50)
    slots = []
    for _ in range(3):
        (request,) = await worker.popped(1)
        lease = request.meta[LEASE]
        assert asyncio.get_running_loop().time() >= lease.slot
        slots.append(lease.slot)
        assert request.meta[SOURCE] == "museum"
        assert lease.request is request
    assert slots[1] - slots[0] > 0.02 - 1e-3
    assert slots[2] - slots[1] > 0.02 - 1e-3
    assert worker.queue.pop() is None


async def test_doubt_about_the_time_returns_what_waits_and_lets_nothing_out(state: State) -> None:
    worker = Worker(state)
    await worker.ready(rate=50)
    await worker.look_up()
    await worker.put(*map(str, range(30)))
    await until_async(partial(_leases, worker))
    (request,) = await worker.popped(1)
    state.clock.doubt(asyncio.get_running_loop().time())
    assert not Passage.of_lease(state, request.meta[LEASE], "museum.localhost").is_open  # not even in flight
    await worker.queue.fill()
    assert len(worker.queue) == 0
    await worker.queue.flush()
    assert await worker.redis.hlen(state.keys.leases_of + state.worker_id) == 1
    assert worker.stat("frontier/returned") >= 10
    entries = await worker.redis.lrange(state.keys.queue_of + "0:museum", 0, -1)
    names = [codec.url_of(entry).rpartition("/")[2] for entry in entries]
    assert names == [str(n) for n in range(30) if str(n) != request.meta["identifier"]]
    state.clock.valid_from = 0.0
    assert await worker.popped(1)


async def test_a_missed_slot_is_not_used_and_the_request_goes_back(state: State) -> None:
    worker = await filled(state, "a")
    await asyncio.sleep(tolerance(200) + 0.05)
    assert worker.queue.pop() is None
    assert worker.stat("frontier/slots_missed") == 1
    await worker.queue.flush()
    await worker.queue.fill()
    (request,) = await worker.popped(1)
    assert request.meta[LEASE].deliveries == 0


async def test_an_undecodable_entry_becomes_a_dead_letter_and_the_rest_goes_on(state: State) -> None:
    worker = Worker(state)
    await worker.ready()
    await put(state, [b"\x09\x00\x00garbage", b"\x01\x00\x00\xc1", b"\x01"])
    await worker.put("good")
    await worker.queue.fill()
    (request,) = await worker.popped(1)
    assert request.url.endswith("/good")
    await worker.queue.flush()
    reasons = [fields[b"reason"] for _, fields in await worker.redis.xrange(state.keys.dead)]
    assert len(reasons) == 3
    assert reasons[0] == b"stored request of unknown version 09"
    assert await worker.redis.hget(state.keys.counters, "outstanding") == b"1"


async def test_what_waits_and_what_is_in_flight_are_bounded_apart(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawlproject.frontier.lease_queue._MAX_WAITING", 4)
    monkeypatch.setattr("crawlproject.frontier.shares._SILENT_S", 600.0)  # however slow this test is
    worker = await filled(state, *(str(n) for n in range(40)), capacity=10)
    assert len(worker.queue) == 4
    assert worker.queue.room == 0
    started = await worker.popped(2)
    assert worker.queue.room >= 2
    worker.queue.settle(started[0].meta[LEASE], fetched(started[0].meta[LEASE]))

    async def is_full() -> bool:
        await worker.queue.flush()
        if worker.queue.room:
            await worker.queue.fill()
        assert len(worker.queue) <= 4
        assert len(worker.queue.leases) <= 10
        started.extend(request for _ in range(2) if (request := worker.queue.pop()) is not None)
        return len(worker.queue.leases) >= 8

    await until_async(is_full)


def fetched(lease: Lease) -> Settlement:
    """Return the end of a lease whose request was answered."""
    lease.fetched = asyncio.get_running_loop().time()
    return Settlement(lease.id, lease.source, event=("link_rot", "{}"), fine=True, status="404", latency=0.01)


async def test_a_lease_ends_once(state: State) -> None:
    worker = await filled(state, "a")
    (request,) = await worker.popped(1)
    lease: Lease = request.meta[LEASE]
    done = Settlement(lease.id, "museum", event=("link_rot", "{}"), counts={"link_rot": 1})
    assert worker.queue.settle(lease, done)
    assert not worker.queue.settle(lease, done)
    assert not worker.queue.give_back(lease)
    await worker.queue.flush()
    assert await worker.redis.xlen(state.keys.link_rot_events) == 1
    assert worker.stat("frontier/done") == 1


async def test_only_what_was_written_to_a_connection_costs_the_spiders_own_delay(state: State) -> None:
    state.delay = 60.0
    state.scripts = Scripts(state.redis, state.keys, state.clock, pace=int(state.delay * 1_000_000))
    worker = Worker(state)
    await worker.ready()
    await worker.look_up()
    await worker.put("a", "b")

    async def next_lease() -> Lease:
        await until_async(partial(_leases, worker))
        (request,) = await worker.popped(1)
        assert request.meta["identifier"] == "a"
        lease: Lease = request.meta[LEASE]
        return lease

    unsent = await next_lease()
    worker.queue.give_back(unsent)
    await worker.queue.flush()
    sent = await next_lease()  # at once
    sent.sent = True
    worker.queue.give_back(sent)
    await worker.queue.flush()
    until = await worker.redis.zscore(state.keys.paced, "museum")
    assert until == pytest.approx(sent.at + 60e6, abs=2)
    assert not await _leases(worker)


async def test_a_source_that_missed_its_slot_waits_for_no_other_one(state: State) -> None:
    worker = await filled(state, "a", rate=0.01)
    (missed,) = worker.queue.leases.values()
    missed.latest = missed.slot - 1
    assert worker.queue.pop() is None
    await worker.queue.flush()
    assert not missed.is_fresh(missed.slot - 2)  # whoever holds it still
    await until_async(partial(_leases, worker))  # soon, not a hundred seconds later
    (lease,) = worker.queue.leases.values()
    assert lease.at >= missed.at
    assert await worker.redis.zscore(state.keys.slots, "museum") == pytest.approx(lease.at + 100e6, abs=2)


async def test_what_has_passed_the_gate_costs_its_slot(state: State) -> None:
    worker = await filled(state, "a", rate=0.1)
    (lease,) = worker.queue.leases.values()
    lease.spent = True
    worker.queue.give_back(lease)
    await worker.queue.flush()
    assert not await _leases(worker)
    assert await worker.redis.zscore(state.keys.slots, "museum") == pytest.approx(lease.at + 10e6, abs=2)


async def _leases(worker: Worker) -> bool:
    """Lease; a machine that stands still meanwhile doubts the time, and gives all back."""
    await worker.queue.fill()
    await worker.queue.flush()
    return bool(worker.queue.leases)


async def test_settlements_that_could_not_be_sent_are_sent_again(state: State) -> None:
    worker = await filled(state, "a", "b")
    for request in await worker.popped(2):
        lease = request.meta[LEASE]
        worker.queue.settle(lease, Settlement(lease.id, "museum", event=("link_rot", "{}")))
    await worker.redis.set(state.keys.excluded, "in the way")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE crawl:excluded is a string, not a set"):
        await worker.queue.flush()
    assert worker.queue.settled.is_set()  # whatever else happens, they are sent again
    await worker.redis.delete(state.keys.excluded)
    await worker.queue.flush()
    assert await worker.redis.xlen(state.keys.link_rot_events) == 2
    assert await worker.redis.hget(state.keys.counters, "outstanding") == b"0"


async def test_long_events_are_settled_in_batches_of_some_megabytes(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await filled(state, "a", "b", "c")
    settle, batches = state.scripts.settle, list[int]()

    async def counted(worker_id: str, settlements: Sequence[Settlement]) -> Any:
        batches.append(len(settlements))
        return await settle(worker_id, settlements)

    monkeypatch.setattr(state.scripts, "settle", counted)
    monkeypatch.setattr(lease_queue, "_SETTLE_BYTES", 20)
    for request in await worker.popped(3):
        lease = request.meta[LEASE]
        worker.queue.settle(
            lease, Settlement(lease.id, "museum", event=("image_metadata_updates", "123456789012"))
        )
    await worker.queue.flush()
    assert batches == [2, 1]
    assert await worker.redis.xlen(state.keys.image_events) == 3


async def test_a_lapsed_worker_drops_what_it_has_not_started(state: State) -> None:
    worker = await filled(state, "a", "b", "c", rate=10)
    (started,) = await worker.popped(1)
    worker.queue.forget_waiting()
    assert list(worker.queue.leases) == [started.meta[LEASE].id]
    assert len(worker.queue) == 0
    assert started.meta[LEASE].revoked  # not sent either, should it still be connecting


async def test_when_a_source_was_stopped_nothing_waiting_or_connecting_is_sent(state: State) -> None:
    worker = await filled(state, "a", "b", "c", rate=10)
    ended, connecting = [request.meta[LEASE] for request in await worker.popped(2)]
    assert not connecting.revoked
    await worker.redis.sadd(state.keys.halted, "museum")
    worker.queue.settle(ended, Settlement(ended.id, "museum", dead="x", status="200", fine=True))
    await worker.queue.flush()
    assert connecting.revoked
    assert not connecting.is_fresh(connecting.slot)
    assert list(worker.queue.leases) == [connecting.id]


async def test_waiting_leases_go_back_in_order_at_shutdown(state: State) -> None:
    worker = await filled(state, "a", "b", "c", "d", rate=40)
    worker.queue.give_back_waiting()
    await worker.queue.flush()
    await worker.queue.fill()
    assert [request.url[-1] for request in await worker.popped(4)] == ["a", "b", "c", "d"]


async def test_what_belongs_to_another_source_goes_behind_what_waits_there_in_order(state: State) -> None:
    worker = Worker(state)
    await worker.ready()
    await worker.put("a", "b", source="museum.localhost")
    await worker.put("c", "d", "e", source="made-up")
    await worker.redis.sadd(state.keys.halted, "museum.localhost")
    await worker.queue.fill()
    await worker.queue.flush()
    entries = await worker.redis.lrange(state.keys.queue_of + "0:museum.localhost", 0, -1)
    assert [codec.url_of(entry)[-1] for entry in entries] == ["a", "b", "c", "d", "e"]


async def test_a_worker_holds_one_suspect_until_that_has_ended(state: State) -> None:
    worker = Worker(state)
    await worker.ready()
    await worker.put("s", "t", deliveries=1)
    await until_async(partial(_leases, worker))
    await asyncio.sleep(0.5)
    await until_async(partial(_leases, worker))
    [(name, lease)] = worker.queue.leases.items()
    worker.queue.settle(lease, Settlement(name, "museum", dead="x"))
    assert worker.queue.is_needed
    await asyncio.sleep(0.5)
    await worker.queue.fill()
    assert not worker.queue.leases  # the death of this worker would count against both
    await worker.queue.flush()
    assert not worker.queue.is_needed

    await until_async(partial(_leases, worker))


@pytest.mark.parametrize("deliveries", [0, 2])
async def test_a_request_waits_in_redis_for_its_robots_txt_while_that_is_looked_up(
    state: State, deliveries: int
) -> None:
    worker = Worker(state)
    await worker.ready(options="{}")
    origin = "http://museum.localhost/robots.txt"
    assert (await state.scripts.look_robots("a look-up whose download hangs", origin, "museum")).fetch
    await worker.put("s", deliveries=deliveries)
    seconds, _ = await worker.redis.time()

    async def is_put_off() -> bool:
        assert await worker._popped() is None
        return worker.stat("frontier/put_off") >= 1

    await until_async(is_put_off)
    assert not worker.queue.leases  # also of a suspect, for which others of its kind wait
    await worker.queue.flush()
    [(_, due)] = await worker.redis.zrange(state.keys.delayed_of + "museum", 0, -1, withscores=True)
    assert due / 1_000_000 > seconds + 0.5
    await worker.robots.close()
