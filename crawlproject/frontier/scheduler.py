"""Scrapy's scheduler, on top of a frontier that many workers share."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
from collections import deque
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Self

from scrapy import Request, Spider, signals
from scrapy.utils.defer import deferred_from_coro
from scrapy_redis.scheduler import Scheduler
from scrapy_redis.spiders import RedisMixin

from crawlproject import config, program
from crawlproject.errors import ConfigError, RedisUnavailable
from crawlproject.frontier import codec
from crawlproject.frontier.contents import seen_filter_fault
from crawlproject.frontier.forwarding import Forwarder, UsersSeeds
from crawlproject.frontier.lease_queue import PATIENCE_S, LeaseQueue
from crawlproject.frontier.seeds import (
    SeedReader,
    check_spider,
    has_starts,
    new_request,
    requests_of,
)
from crawlproject.models import LEASE, LED_BY, MODE, REVISIT, Lease
from crawlproject.net.handler import budget_of_process
from crawlproject.net.resolver import resolver_of_process
from crawlproject.net.route import route_of
from crawlproject.politeness.outcomes import MOST_DELIVERIES
from crawlproject.politeness.slots import HORIZON_S, LEASE_EVERY_S
from crawlproject.robots.cache import RobotsCache
from crawlproject.runtime import Leasing, Loops, Pauses, Runtime, Shutdown, runtime_of
from crawlproject.sources.domains import domain_of_url
from crawlproject.state.calls import NewRequest
from crawlproject.state.client import REDIS_TROUBLE, State, unavailable
from crawlproject.state.clock import local_time
from crawlproject.state.over_shards import shown
from crawlproject.streams.readers import count_without_reader
from crawlproject.texts import counted, printable, without_userinfo

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

logger = logging.getLogger(__name__)

# In the environment of a process: the shard that this worker serves when it has executed itself again.
MOVES_TO = "_CRAWLPROJECT_MOVES_TO"

_LOOK_S = 0.15  # between looks whether leasing goes on; before requests are leased that have just been stored
_LOOK_AGAIN_S = 0.5  # between lease calls while nothing is due
_SETTLE_EVERY_S = 0.2  # between settlements that are needed soon, unless a lease call takes them along
_ENQUEUE_BATCH = 200
_MOST_NEW = 10_000  # requests that callbacks have yielded and no shard has yet; with more, nothing is leased
_REVISIT_EVERY_S = 5.0  # between looks for pages that are to be looked at again
_REVISITED = 100  # sources of such pages in one call: a few milliseconds
# Of garbage: objects made between two collections of the youngest, and collections of the younger between two full
# ones. A full one comes as rarely as with 700 and 100.
# Python's defaults are 700, fewer than a page makes, and 10.
_YOUNG_OBJECTS = 20_000
_YOUNGER_COLLECTIONS = 4
_LAST_SETTLEMENTS_S = 1.0  # after the grace, for aborted requests to settle; then all leases go back


class _New(NamedTuple):
    """A request to be stored, and the leases that do not end before."""

    request: NewRequest
    leases: list[Lease]


class FrontierScheduler(Runtime, Scheduler):
    """scrapy-redis' scheduler with its own lease queue and seen filter, which never blocks the reactor on Redis.

    Requests come from Redis in batches of leases before they are needed; `next_request` looks at memory only.
    `enqueue_request` notes what to store, and never raises. Four tasks talk to Redis: one reads seeds, one leases,
    one settles and stores, and one watches for the end of the crawl. All of them speak to the one shard that this
    worker serves; only the last one looks at the others.

    A request that comes back with a lease (a redirect, a missed slot) returns to the frontier in place of the
    leased request, so that it, too, goes out only with a slot of the source that it goes to. The frontier is
    never flushed: other workers share it. With FRONTIER_ALONE (`scrapy shell`, `fetch`, `parse`, `check`) this
    process reads no seeds and crawls the spider's requests itself; each waits for a slot at the gate.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.config = config.load(crawler.settings)
        self.stats = crawler.stats
        self._new: deque[_New] = deque()
        self._own: deque[Request] = deque()
        self._idle_since: float | None = None
        self._marks: list[tuple[bytes, ...]] = []  # of the shards, when they were last looked at
        self._users_seeds: UsersSeeds | None = None
        self._forwarders: list[Forwarder] = []
        self._drained = False
        self._ending = asyncio.Lock()  # held while new requests are stored, and leases ended
        self._ended_at = 0.0  # when that was last done
        self._stop_at: float | None = None
        self.leasing = Leasing()
        self.shutdown = Shutdown(crawler)
        self.pauses = Pauses()
        self._reported = "no pulse"  # until a leader has read the catalogue

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the scheduler of `crawler`; the connection is made by `open`."""
        return cls(crawler)

    # Scrapy's interface

    def open(self, spider: Spider) -> Deferred[None]:
        """Connect, register this worker, and start the tasks."""
        return deferred_from_coro(self._open_or_refuse(spider))

    def close(self, reason: str) -> Deferred[None]:
        """Give back what was not started, send the last settlements, and deregister this worker."""
        return deferred_from_coro(self._close())

    def has_pending_requests(self) -> bool:
        """Tell whether the spider must stay open: until the whole frontier has been empty long enough."""
        return bool(self._own) or not self._drained

    def enqueue_request(self, request: Request) -> bool:
        """Note a request to be stored; a request with a lease goes back in place of the leased request."""
        try:
            lease = request.meta.get(LEASE)
            if lease is not None and not lease.reached_spider:
                return self._put_back(lease, request)
            led_by: Lease | None = request.meta.get(LED_BY, lease)
            if led_by is not None:
                request = codec.detached(request)
            if self._is_alone:
                self._own.append(request)
                return True
            new = new_request(request, self.spider)
            if new.again:  # sent anew when the reply is lost
                new = replace(new, once=secrets.token_bytes(8))
            self._new.append(_New(new, self._led_by(led_by, request)))
            self.queue.settled.set()
        except Exception as error:
            url = printable(without_userinfo(request.url))
            trace = None if isinstance(error, ValueError) else error  # of `codec.encode`: a sentence says it all
            said = "A request to %s cannot be stored: %s"
            logger.error(said, url, printable(str(error)), exc_info=trace, extra={"request": request})
            self.stats.inc_value("frontier/not_stored")
            return False
        self._drained, self._idle_since = False, None
        return True

    def _led_by(self, lease: Lease | None, request: Request) -> list[Lease]:
        """Return the leases that end after a request has been stored, having each of them count it.

        It is that of the response whose callback, or errback, yielded it. What comes from elsewhere, as from a
        pipeline, may be of each that the spider has been given and is not done with; start requests are of none.
        """
        if lease is not None:
            leases = [lease]
        elif request.meta.get("is_start_request"):
            leases = []
        else:
            leases = [one for one in self.queue.leases.values() if one.reached_spider]
        for one in leases:
            one.unstored += 1
        return leases

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

    # Opening and closing

    async def _open_or_refuse(self, spider: Spider) -> None:
        """Open, or end the process with one sentence; Scrapy would print tracebacks around it."""
        try:
            config.check_components(self.crawler.settings)
            config.check_guarded(self.crawler.settings)
            await self._open(spider)
        except (ConfigError, RedisUnavailable) as error:
            raise SystemExit(program.as_called(f"{program.name()}: {error}")) from None

    async def _open(self, spider: Spider) -> None:
        self.spider = spider
        self._is_alone = self.crawler.settings.getbool("FRONTIER_ALONE")
        check_spider(spider)
        if isinstance(spider, RedisMixin):  # it would take seeds from the list, with blocking calls
            self.crawler.signals.disconnect(spider.spider_idle, signals.spider_idle)
        moved = os.environ.pop(MOVES_TO, None)
        self.state = State(self.config, spider.name, None if moved is None else int(moved))
        await self.state.open(serves=not self._is_alone)
        self.crawler.signals.connect(self.state.close, signal=signals.engine_stopped)
        capacity = self.crawler.settings.getint("CONCURRENT_REQUESTS")
        self.resolver = resolver_of_process(self.config)
        self.robots = RobotsCache(self.crawler, self.config, self.state, self.resolver, self.shutdown)
        self.queue = LeaseQueue(self.state, spider, capacity, self.stats, self._wake, self.resolver, self.robots)
        _collect_rarely()
        await self._join()
        self._loops = Loops(self.state)
        self._loops.start(self._watch)
        if not self._is_alone:
            self._reader = SeedReader(self.state, spider, requests_of(spider), self.stats, self.leasing.wanted.set)
            self._loops.start(self._lease, self._settle, self._read_seeds)
            if self.config.pages_revisit and codec.is_stored(REVISIT, spider):
                self._loops.start(self._revisit)
            self._keep_forwarding()

    async def _join(self) -> None:
        """Register this worker, and log what the operator should know of this Redis.

        Raises:
            RedisUnavailable: Redis fails.

        """
        state, timeout = self.state, self.config.heartbeat_timeout
        try:
            if fault := await seen_filter_fault(state):
                logger.warning("%s", fault)
            joined = await state.scripts.heartbeat(
                state.worker_id, join=True, timeout=timeout, max_deliveries=MOST_DELIVERIES
            )
        except REDIS_TROUBLE as error:
            raise unavailable(state.url, error) from None
        if joined.alive > 1:
            state.clock.doubt(local_time())
        if state.count > 1:
            logger.info("This worker serves %s", shown(state))

    def _keep_forwarding(self) -> None:
        """Give other shards what is theirs: of seeds that users push, and of what waits here."""
        if self.state.is_shard:
            self._users_seeds = UsersSeeds(self.state, requests_of(self.spider))
            self._loops.start(self._users_seeds.split, self._users_seeds.forward)
        if self.state.count > 1:
            # Also for spiders that this one finds requests for: perhaps none of their workers runs.
            spiders = (self.spider.name, *getattr(self.spider, "finds_for", ()))
            self._forwarders = [Forwarder(self.state.beside(spider)) for spider in spiders]
            self._loops.start(*(forwarder.step for forwarder in self._forwarders))

    async def _close(self) -> None:
        if not hasattr(self, "_loops"):
            return  # never opened
        self.leasing.wanted.set()
        self.queue.settled.set()
        await self._loops.stop(grace=1.5)  # the longest step is a blocking read of 1 s
        for forwarder in self._forwarders:
            await forwarder.stop()
        if self._users_seeds is not None:
            await self._users_seeds.close()
        route_of(self.crawler).breaker.close()
        await self.robots.close()
        await self.resolver.close()
        self.queue.give_back_waiting()
        try:
            await self._leave()
        except REDIS_TROUBLE as error:
            logger.error(
                "Redis fails at shutdown; this worker's leases return when its heartbeat lapses: %s", error
            )
        if self._new:
            logger.error(
                "%d requests could not be stored: those that were found are found again, start requests are lost",
                len(self._new),
            )

    async def _leave(self) -> None:
        """Store what was found, send the last settlements, and deregister."""
        await self._end_leases()
        if returned := await self.state.scripts.leave(self.state.worker_id):
            self.stats.inc_value("frontier/returned_at_close", returned)
        if unread := await count_without_reader(self.state):
            events = counted(unread, "event")
            said = program.as_called(
                "Waiting for a reader: %s; scrapy events results.jsonl appends them to a file"
            )
            logger.info(said, events)  # as_called: in a project of a user's, `scrapy crawl` has its own log format

    def _wake(self) -> None:
        """Have the engine call `next_request` now; otherwise it does so every 5 s."""
        engine = self.crawler.engine
        if engine.running and engine._slot is not None:
            engine._slot.nextcall.schedule()

    def _is_full(self) -> bool:
        """Tell whether a request would not be sent now; the engine may be at capacity, or not yet running."""
        engine = self.crawler.engine
        is_full = self.queue.room <= 0 or budget_of_process().over_soft_limit
        return is_full or engine.scraper.slot is None or engine.needs_backout()

    # Tasks

    async def _read_seeds(self) -> None:
        await asyncio.sleep(_LOOK_S if self.shutdown.has_begun else await self._reader.read())

    async def _lease(self) -> None:
        if self.shutdown.has_begun:
            self._stop_in_time()
        elif self.leasing.paused:
            self._report("paused", self.leasing.paused)
            self.queue.give_back_waiting()
        elif len(self._new) > _MOST_NEW:
            self._report("paused", f"more than {_MOST_NEW} requests wait to be stored")
        elif not self._is_full() and self.state.clock.valid_from <= local_time():
            await self._fill()
            return
        await asyncio.sleep(_LOOK_S)

    async def _fill(self) -> None:
        """Lease what there is room for, and wait until the next call."""
        if asyncio.get_running_loop().time() >= self._ended_at + self._patience():
            await self._end_leases()  # back to back the two calls cost Redis less
        self.leasing.wanted.clear()
        reply = await self.queue.fill()
        if self.resolver.outage:  # most of these leases come back
            await asyncio.sleep(_LOOK_AGAIN_S)
        if self.leasing.paused:  # since this call began
            self._report("paused", self.leasing.paused)
        else:
            self._report(reply.state, reply.reason)
        wait = _LOOK_AGAIN_S
        if reply.next_due is not None and reply.state == "ok":
            ahead = reply.next_due - asyncio.get_running_loop().time() - HORIZON_S / 2
            wait = min(max(ahead, LEASE_EVERY_S), _LOOK_AGAIN_S)
        await self._rest(wait)

    def _stop_in_time(self) -> None:
        """Give back what has not started; after the grace, abort what is in flight."""
        self.queue.give_back_waiting()
        now = asyncio.get_running_loop().time()
        if self._stop_at is None:
            self._stop_at = now + self.config.shutdown_grace
        if now < self._stop_at or not self.queue.leases:
            return
        if not self.shutdown.grace_over.is_set():
            logger.warning("CRAWL_SHUTDOWN_GRACE is over: %d requests are aborted", len(self.queue.leases))
            self.shutdown.grace_over.set()
        elif now > self._stop_at + _LAST_SETTLEMENTS_S:
            self.queue.give_back_all()

    async def _rest(self, seconds: float) -> None:
        """Wait `seconds`, or less if there is a reason to lease."""
        try:
            async with asyncio.timeout(seconds):
                await self.leasing.wanted.wait()
        except TimeoutError:
            return
        if self.queue.leases:
            await asyncio.sleep(_LOOK_S)

    async def _revisit(self) -> None:
        """Store the requests for pages whose next look is due."""
        reply = None if self.shutdown.has_begun else await self.state.scripts.revisit(count=_REVISITED)
        if reply is None:
            await asyncio.sleep(_LOOK_AGAIN_S)
            return
        requests, looked = reply
        if requests:
            self._drained, self._idle_since = False, None
            self.leasing.wanted.set()
        if looked < _REVISITED:
            await asyncio.sleep(_REVISIT_EVERY_S)

    async def _settle(self) -> None:
        """Settle what no lease call takes along in time."""
        await self.queue.settled.wait()
        patience = self._patience()
        every = patience + LEASE_EVERY_S if patience else _SETTLE_EVERY_S
        rest = self._ended_at + every - asyncio.get_running_loop().time()
        if rest > 0:
            await asyncio.sleep(min(rest, _SETTLE_EVERY_S))  # a lease call may take them along meanwhile
        else:
            await self._end_leases()

    def _patience(self) -> float:
        """Return for how many seconds after a settlement the next ones may wait: few are needed sooner."""
        is_needed = self._new or self.queue.is_needed or not self.queue.leases
        return 0.0 if is_needed else PATIENCE_S

    async def _end_leases(self) -> None:
        """Store what was found, and end the leases that may end.

        The requests found in a response are stored before its lease ends, so that none is lost in between.
        """
        async with self._ending:
            await self._store_new()
            self.queue.settle_ended()
            await self.queue.flush(self.queue.unsent)
            if self._new:
                self.queue.settled.set()  # to try again
            self._ended_at = asyncio.get_running_loop().time()

    async def _store_new(self) -> None:
        """Store the new requests, unless no catalogue is known that says whose they are.

        One for another shard stays here if as many wait for that as may, and so does the lease of the response
        that it was found in.
        """
        left = len(self._new)
        while left > 0:
            batch = list(islice(self._new, min(left, _ENQUEUE_BATCH)))
            left -= len(batch)
            reply = await self.state.scripts.enqueue(self.state.worker_id, [new.request for new in batch])
            if reply is None:
                return
            for at, new in enumerate(batch):
                self._new.popleft()
                if at in reply.unstored:
                    self._new.append(new)
                else:
                    for lease in new.leases:
                        lease.unstored -= 1
            self.stats.inc_value("frontier/enqueued", reply.admitted)
            self.stats.inc_value("frontier/duplicates", reply.duplicates)
            if reply.forwarded:
                self.stats.inc_value("frontier/forwarded", reply.forwarded)
            self.leasing.wanted.set()

    async def _watch(self) -> None:
        """Notice when the whole frontier has been idle long enough for the spider to close."""
        patience = self.config.max_idle or (0.5 if self._is_alone or has_starts(self.spider) else 0.0)
        await asyncio.sleep(min(0.5, patience / 4) if patience else 1.0)
        if not patience:
            return
        now = asyncio.get_running_loop().time()
        if self._is_alone:
            self._drained = True  # nothing but its own requests
            self._wake()
        elif self.queue.leases or self._new or not await self._is_idle():
            self._idle_since, self._drained = None, False
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= patience:
            self._drained = True
            self._wake()

    async def _is_idle(self) -> bool:
        """Tell whether no work is left, in whichever shard.

        Shards are looked at one after the other, while requests may go from one to another: so all of them must be
        idle in two looks, and in between nothing have been sent, received or leased in any.
        """
        # First: seeds leave it for the frontier.
        if self._users_seeds is not None and not await self._users_seeds.is_empty():
            return False
        marks = []
        for shard in self.state.shards:
            found = await shard.scripts.idleness()
            if not found.is_idle:
                return False
            marks.append(found.marks)
        was_at_rest, self._marks = self.state.count == 1 or marks == self._marks, marks
        return was_at_rest

    def _report(self, state: str, reason: str) -> None:
        """Log why nothing is leased, once per change."""
        what = reason if state == "paused" else state
        if what != self._reported:
            if state == "ok":
                logger.info("Leasing resumed")
            elif state != "lapsed":
                logger.warning("Leasing paused: %s", reason)
            self._reported = what

    def _put_back(self, lease: Lease, request: Request) -> bool:
        """Store `request` in place of the leased request, for a slot of the source that pays for it.

        Within the registrable domain of the seed that is the one that the picture is crawled as; another domain
        pays for itself.
        """
        entry = codec.encode(request, self.spider, deliveries=lease.deliveries)
        domain: str | None = domain_of_url(request.url)
        if domain == domain_of_url(codec.seed_url(request)):
            domain = None
        sent = lease.request
        redirected = sent is not None and sent.url != request.url
        differs = sent is not None and sent.meta.get(MODE) != request.meta.get(MODE)  # asked in another way
        source = codec.paced_as(request)
        return self.queue.give_back(lease, entry, source=source, domain=domain, answered=redirected or differs)


def scheduler_of(crawler: Crawler) -> FrontierScheduler:
    """Return the scheduler of a crawl that has opened its spider, with what the components of a worker share.

    Raises:
        ConfigError: the crawl uses another scheduler.

    """
    scheduler = runtime_of(crawler)
    assert isinstance(scheduler, FrontierScheduler)
    return scheduler


def _collect_rarely() -> None:
    """Have Python look through all objects a tenth as often, and never again through those of the start.

    With a few thousand requests in progress a full collection of garbage takes 0.1 s and more. That is longer than
    a fast source's slots may be late (politeness/slots.py), so that it lost a dozen of them every five seconds.
    Little was found: most cycles end in the younger collections.
    """
    gc.freeze()
    _, middle, _ = gc.get_threshold()
    gc.set_threshold(_YOUNG_OBJECTS, middle, _YOUNGER_COLLECTIONS)
