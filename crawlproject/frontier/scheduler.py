"""Scrapy's scheduler, over a frontier that many workers share."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Self

from scrapy import Request, Spider, signals
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.misc import load_object
from scrapy_redis.scheduler import Scheduler

from crawlproject import config, engine
from crawlproject.errors import ConfigError
from crawlproject.frontier import codec
from crawlproject.frontier.lease_queue import HORIZON, LeaseQueue
from crawlproject.frontier.seeds import SeedReader, new_request
from crawlproject.loops import Loops
from crawlproject.models import LEASE, SOURCE, Lease
from crawlproject.net.download_budget import DownloadBudget
from crawlproject.net.resolver import resolver_of_process
from crawlproject.robots.cache import RobotsCache
from crawlproject.sources.domains import domain_of_url
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.state.scripts import NewRequest
from crawlproject.texts import printable, without_userinfo
from crawlproject.worker import Leasing, Shutdown, Worker

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

logger = logging.getLogger(__name__)

_LEASE_EVERY = 0.1  # seconds between lease calls, so that each of them brings a batch
_LOOK_AGAIN = 0.5  # seconds between lease calls while nothing is due
_SETTLE_EVERY = 0.15  # seconds that settlements are collected
_ENQUEUE_BATCH = 500
_LAST_WORDS = 1.0  # seconds from the end of the grace until the leases of pictures still looked at go back, too


class FrontierScheduler(Scheduler):
    """scrapy-redis' scheduler with our queue and dupefilter in its places, and no command on the reactor.

    Requests come from Redis in batches of leases before they are needed; `next_request` looks at memory
    only. `enqueue_request` notes what to store, and never raises. Tasks of its own do the talking: one reads
    seeds, one leases, one settles and stores, one watches for the end.

    A request that comes back with a lease (a redirect, one whose slot was missed) returns to the frontier in
    place of the one that was leased, so that it too leaves only with a slot of the source that it asks.
    The frontier is never flushed: other workers share it. `scrapy shell` and `scrapy fetch` bring spiders that
    no seeds feed: this process crawls their requests itself, each by a slot of the gate.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.config = config.load(crawler.settings)
        self.df = load_object(crawler.settings["DUPEFILTER_CLASS"])()
        self.stats = crawler.stats
        self._new: list[NewRequest] = []
        self._own: deque[Request] = deque()
        self._idle_since: float | None = None
        self._drained = False
        self._stop_at: float | None = None
        self.leasing = Leasing()
        self.shutdown = Shutdown(crawler)
        self._reported = "no pulse"  # until a leader has read the catalogue

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the scheduler of `crawler`; the connection is made by `open`."""
        return cls(crawler)

    # Scrapy's interface

    def open(self, spider: Spider) -> Deferred[None]:
        """Connect, register this worker, and start the tasks."""
        return deferred_from_coro(self._open(spider))

    def close(self, reason: str) -> Deferred[None]:
        """Hand back what was not started, send the last settlements, and deregister."""
        return deferred_from_coro(self._close())

    def has_pending_requests(self) -> bool:
        """Tell whether the spider must stay open: until the whole frontier has been empty long enough."""
        return bool(self._own) or not self._drained

    def enqueue_request(self, request: Request) -> bool:
        """Note a request to be stored; one with a lease goes back in place of the leased one."""
        try:
            lease = request.meta.get(LEASE)
            if lease is not None:
                return self._put_back(lease, request)
            if self._request_for is None:
                self._own.append(request)
                return True
            self._new.append(new_request(request, self.spider, self.df))
        except Exception:
            url = printable(without_userinfo(request.url))
            logger.exception("A request to %s cannot be stored", url, extra={"request": request})
            self.stats.inc_value("frontier/not_stored")
            return False
        self.queue.settled.set()
        return True

    def next_request(self) -> Request | None:
        """Return a request whose send slot has come."""
        if self._own:
            return self._own.popleft()
        request: Request | None = self.queue.pop()
        if request is not None:
            self.stats.inc_value("frontier/started")
        return request

    def __len__(self) -> int:
        """Return the number of leases that wait for their slot."""
        return len(self.queue)

    def flush(self) -> None:
        """Refuse: other workers share the frontier."""
        raise ConfigError("the frontier is shared and not flushed: use another CRAWL_NAMESPACE to start afresh")

    # Life

    async def _open(self, spider: Spider) -> None:
        self.spider = spider
        self._request_for = getattr(spider, "request_for", None)
        self.state = State(self.config, spider.name)
        await self.state.open()
        self.crawler.signals.connect(self._disconnect, signal=signals.engine_stopped)
        capacity = self.crawler.settings.getint("CONCURRENT_REQUESTS")
        queue_class = load_object(self.crawler.settings["SCHEDULER_QUEUE_CLASS"])
        self.resolver = resolver_of_process(self.config)
        self.robots = RobotsCache(self.crawler, self.config, self.state, self.resolver, self.shutdown)
        self.queue: LeaseQueue = queue_class(
            self.state, spider, capacity, self.stats, self._wake, self.resolver, self.robots
        )
        self.worker = Worker(
            spider=spider,
            state=self.state,
            resolver=self.resolver,
            robots=self.robots,
            leases=self.queue,
            download_budget=DownloadBudget(),
            leasing=self.leasing,
            shutdown=self.shutdown,
        )
        await self.state.scripts.heartbeat(
            self.state.worker,
            join=True,
            timeout=self.config.heartbeat_timeout,
            max_deliveries=self.config.max_deliveries,
        )
        self._loops = Loops(self.state)
        self._loops.start(self._lease, self._settle, self._watch)
        if self._request_for is not None:
            self._reader = SeedReader(
                self.state, spider, self._request_for, self.df, self.stats, self.leasing.wanted.set
            )
            self._loops.start(self._read_seeds)

    async def _close(self) -> None:
        if not hasattr(self, "_loops"):
            return  # it was never opened
        self.leasing.wanted.set()
        self.queue.settled.set()
        await self._loops.stop(grace=1.5)  # the longest step is a blocking read of 1 s
        await self.robots.close()
        await self.resolver.close()
        self.queue.give_back_waiting()
        try:
            await self._store_new()
            await self.queue.flush()
            returned = await self.state.scripts.leave(self.state.worker)
        except REDIS_TROUBLE as error:
            logger.error("Redis fails at the end; this worker's leases return by time-out: %s", error)
            return
        if returned:
            self.stats.inc_value("frontier/returned_at_close", returned)

    async def _disconnect(self) -> None:
        await self.state.close()

    def _wake(self) -> None:
        engine.wake(self.crawler)

    # Tasks

    async def _read_seeds(self) -> None:
        if self.shutdown.has_begun:
            await asyncio.sleep(_LEASE_EVERY)
            return
        await asyncio.sleep(await self._reader.read())

    async def _lease(self) -> None:
        if self.shutdown.has_begun:
            self._stop_in_time()
            await asyncio.sleep(_LEASE_EVERY)
            return
        if self.leasing.paused:
            self._report("paused", self.leasing.paused)
            self.queue.give_back_waiting()
            await asyncio.sleep(_LEASE_EVERY)
            return
        if self.queue.room <= 0 or engine.is_busy(self.crawler) or self.worker.download_budget.many:
            await asyncio.sleep(_LEASE_EVERY)
            return
        self.leasing.wanted.clear()
        reply = await self.queue.fill()
        if self.resolver.trouble:  # most of it comes back
            await asyncio.sleep(_LOOK_AGAIN)
        self._report(reply.state, reply.reason)
        wait = _LOOK_AGAIN
        if reply.next_due is not None and reply.state == "ok":
            ahead = reply.next_due - asyncio.get_running_loop().time() - HORIZON / 2
            wait = min(max(ahead, _LEASE_EVERY), _LOOK_AGAIN)
        await self._pause(wait)

    def _stop_in_time(self) -> None:
        """Hand back what has not started, and after the grace what is in flight."""
        self.queue.give_back_waiting()
        now = asyncio.get_running_loop().time()
        if self._stop_at is None:
            self._stop_at = now + self.config.shutdown_grace
        if now < self._stop_at or not self.queue.held:
            return
        if not self.shutdown.grace_over.is_set():
            logger.warning("CRAWL_SHUTDOWN_GRACE is over: %d requests are broken off", len(self.queue.held))
            self.shutdown.grace_over.set()
        elif now > self._stop_at + _LAST_WORDS:
            self.queue.give_back_all()

    async def _pause(self, seconds: float) -> None:
        """Wait, but not when there is reason to lease at once."""
        try:
            async with asyncio.timeout(seconds):
                await self.leasing.wanted.wait()
        except TimeoutError:
            return
        if self.queue.held:
            await asyncio.sleep(_LEASE_EVERY)

    async def _settle(self) -> None:
        await self.queue.settled.wait()
        await asyncio.sleep(_SETTLE_EVERY)
        # What a page has led to is stored before its lease ends: nothing is lost in between.
        await self._store_new()
        await self.queue.flush()

    async def _store_new(self) -> None:
        while self._new:
            batch = self._new[:_ENQUEUE_BATCH]
            reply = await self.state.scripts.enqueue(
                self.state.worker,
                batch,
                high_water=self.config.high_water,
                refuse_unknown=self.config.unknown_sources == "refuse",
            )
            del self._new[: len(batch)]
            if reply is not None:
                self.stats.inc_value("frontier/enqueued", reply.admitted)
                self.stats.inc_value("frontier/duplicates", reply.duplicates)
                self.leasing.wanted.set()

    async def _watch(self) -> None:
        """Find out that nothing is left to do, anywhere, for long enough."""
        patience = self.config.max_idle or (0.5 if self._request_for is None else 0.0)
        await asyncio.sleep(min(0.5, patience / 4) if patience else 1.0)
        if not patience:
            return
        now = asyncio.get_running_loop().time()
        if self.queue.held or self._new or not await self._is_idle():
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= patience:
            self._drained = True
            self._wake()

    async def _is_idle(self) -> bool:
        return await self.state.scripts.idle(halted_too=self.config.close_when_halted)

    def _report(self, state: str, reason: str) -> None:
        """Log why nothing is leased, once a change."""
        what = reason if state == "paused" else state
        if what != self._reported:
            if state == "ok":
                logger.info("Leasing")
            elif state != "lapsed":
                logger.warning("Nothing is leased: %s", reason)
            self._reported = what

    def _put_back(self, lease: Lease, request: Request) -> bool:
        """Store `request` in place of the one that was leased, for a slot of the source that it asks.

        Within the registrable domain of the seed that is the picture's own source; another host pays for
        itself.
        """
        entry = codec.encode(request, self.spider, deliveries=lease.deliveries)
        source = request.meta[SOURCE]
        domain: str | None = domain_of_url(request.url)
        if domain == domain_of_url(codec.seed_url(request)):
            domain = None
        redirected = lease.request is not None and lease.request.url != request.url
        return self.queue.give_back(lease, entry, source=source, domain=domain, answered=redirected)
