"""Scrapy's scheduler, on top of a frontier that many workers share."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict, deque
from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from scrapy import Request, Spider, signals
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.misc import load_object
from scrapy_redis.scheduler import Scheduler

from crawlproject import config, engine
from crawlproject.errors import ConfigError
from crawlproject.frontier import codec
from crawlproject.frontier.detached import detached
from crawlproject.frontier.homes import Homes
from crawlproject.frontier.lease_queue import LeaseQueue
from crawlproject.frontier.overflow import Overflow
from crawlproject.frontier.seeds import (
    SeedReader,
    SeedRouter,
    check_spider,
    has_starts,
    home_of,
    new_request,
    requests_of,
)
from crawlproject.loops import Loops
from crawlproject.models import LEASE, LED_BY, PROBE, REVISIT, Lease
from crawlproject.net.download_budget import DownloadBudget
from crawlproject.net.resolver import resolver_of_process
from crawlproject.net.route import Route
from crawlproject.politeness.slots import HORIZON_S
from crawlproject.robots.cache import RobotsCache
from crawlproject.sources.domains import domain_of_url
from crawlproject.state.agreement import disagreements
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.state.clock import local_time
from crawlproject.state.crossings import Carrier, SeedOutboxes
from crawlproject.state.found_elsewhere import send_requests
from crawlproject.state.over_shards import shown
from crawlproject.state.overflow import count_spilled
from crawlproject.state.scripts import NewRequest
from crawlproject.state.seed_outbox import SeedOutbox
from crawlproject.state.seen import seen_filter_notes
from crawlproject.state.unread import count_without_reader
from crawlproject.storage.blobs import described
from crawlproject.storage.packs import open_packs
from crawlproject.texts import counted, printable, without_userinfo
from crawlproject.worker import Leasing, Shutdown, Worker, collect_rarely

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

logger = logging.getLogger(__name__)

_LEASE_EVERY_S = 0.15  # between lease calls, so that each of them brings a batch
_LOOK_AGAIN_S = 0.5  # between lease calls while nothing is due
_SETTLE_EVERY_S = 0.2  # between settlements, unless a lease call takes them along
_ENQUEUE_BATCH = 200
_MEMBERS_EVERY_S = 2.0  # between two looks who else is there
_MOST_HOPS = 3  # of new requests from shard to shard at the end: their catalogues may differ for a moment
_MOST_NEW = 10_000  # requests that callbacks have yielded and no shard has yet; with more, nothing is leased
_REVISIT_EVERY_S = 5.0  # between looks for pages that are to be looked at again
_SPILLED_EVERY_S = 10.0  # between looks for requests in a store that this worker has not got
_REVISITED = 100  # sources of such pages in one call: a few milliseconds
_LAST_SETTLEMENTS_S = 1.0  # after the grace, for aborted requests to settle; then all leases go back


class _New(NamedTuple):
    """A request to be stored, and the leases that do not end before."""

    request: NewRequest
    leases: list[Lease]


class FrontierScheduler(Scheduler):
    """scrapy-redis' scheduler with its own lease queue and seen filter, which never blocks the reactor on Redis.

    Requests come from Redis in batches of leases before they are needed; `next_request` looks at memory only.
    `enqueue_request` notes what to store, and never raises. Four tasks talk to Redis: one reads seeds, one leases,
    one settles and stores, and one watches for the end of the crawl. Of the first three there is one for each
    shard, so that none waits for a shard that is away.

    A request that comes back with a lease (a redirect, a missed slot) returns to the frontier in place of the
    leased request, so that it, too, goes out only with a slot of the source that it goes to. The frontier is
    never flushed: other workers share it. With FRONTIER_ALONE (`scrapy shell`, `fetch`, `parse`, `check`) this
    process reads no seeds and crawls the spider's requests itself; each waits for a slot at the gate.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.config = config.load(crawler.settings)
        self.df = load_object(crawler.settings["DUPEFILTER_CLASS"])()
        self.stats = crawler.stats
        self._new: defaultdict[int, deque[_New]] = defaultdict(deque)  # by the shard that each goes to next
        self._unstored = 0  # of them, in all
        self._own: deque[Request] = deque()
        self._idle_since: float | None = None
        self._marks: list[tuple[bytes, ...]] = []  # of the shards, when they were last looked at
        self._outbox: SeedOutbox | SeedOutboxes | None = None
        self._carriers: list[Carrier] = []
        self._drained = False
        self._members_at = 0.0  # when to ask again who is there
        self._rests = False  # what this worker has said of itself then
        # Held while a shard's new requests are stored, and its leases ended.
        self._ending: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._ended_at: defaultdict[int, float] = defaultdict(float)  # when that was last done
        self._stop_at: float | None = None
        self.leasing = Leasing()
        self.shutdown = Shutdown(crawler)
        self._look_for_spilled_at = 0.0 if self.config.overflow_store is None else math.inf
        # Of each shard, until a leader has read the catalogue.
        self._reported: defaultdict[int, str] = defaultdict(lambda: "no pulse")

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the scheduler of `crawler`; the connection is made by `open`."""
        return cls(crawler)

    # Scrapy's interface

    def open(self, spider: Spider) -> Deferred[None]:
        """Connect, register this worker, and start the tasks."""
        return deferred_from_coro(self._open(spider))

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
                request = detached(request)
            if self._is_alone:
                self._own.append(request)
                return True
            is_found = bool(request.meta.get("depth"))  # Scrapy counts it from the spider's start
            new = new_request(request, self.spider, self.df, found=is_found)
            self._note_new(home_of(request, self.state.count), _New(new, self._led_by(led_by, request)))
            self._unstored += 1
        except Exception:
            url = printable(without_userinfo(request.url))
            logger.exception("A request to %s cannot be stored", url, extra={"request": request})
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

    def _note_new(self, shard: int, new: _New) -> None:
        self._new[shard].append(new)
        self.queue.lanes[shard].settled.set()

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

    async def _open(self, spider: Spider) -> None:
        self.spider = spider
        self._is_alone = self.crawler.settings.getbool("FRONTIER_ALONE")
        check_spider(spider)
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
        self._homes = Homes(self.state.worker_id, self.state.count)
        self.worker = Worker(
            spider=spider,
            state=self.state,
            resolver=self.resolver,
            route=Route(self.crawler, self.state),
            robots=self.robots,
            lease_queue=self.queue,
            homes=self._homes,
            download_budget=DownloadBudget(),
            leasing=self.leasing,
            shutdown=self.shutdown,
        )
        collect_rarely()
        joined = await self._join()
        if joined is not None:
            kept, warnings = await seen_filter_notes(joined)
            logger.info("%s", kept)
            for warning in (*warnings, *await disagreements(joined)):
                logger.warning("%s", warning)
        self._loops = Loops(self.state)
        self._loops.start(self._watch)
        if not self._is_alone:
            for shard in self.state.shards:
                reader = SeedReader(
                    shard, spider, requests_of(spider), self.df, self.stats, self.leasing.wanted.set
                )
                steps = (partial(self._lease, shard.number), partial(self._settle, shard.number))
                self._loops.start(*steps, partial(self._read_seeds, reader))
                if self.config.pages_revisit and codec.is_stored(REVISIT, spider):
                    self._loops.start(partial(self._revisit, shard))
            self._keep_crossings()
            if self.config.overflow_store is not None:
                self._keep_overflow(self.config.overflow_store)

    async def _join(self) -> State | None:
        """Register this worker; return the first shard that has it.

        With several shards one that is away does not hold it up: it is joined later.
        """

        async def join(shard: State) -> None:
            await shard.scripts.heartbeat(
                self.state.worker_id,
                join=True,
                timeout=self.config.heartbeat_timeout,
                max_deliveries=self.config.max_deliveries,
            )
            self.worker.joined.add(shard.number)
            if await shard.scripts.alive(timeout=self.config.heartbeat_timeout) != [self.state.worker_id]:
                shard.clock.doubt(local_time())

        if self.state.count == 1:
            await join(self.state)
            return self.state
        joined = None
        results = await asyncio.gather(*map(join, self.state.shards), return_exceptions=True)
        for shard, result in zip(self.state.shards, results, strict=True):
            if isinstance(result, REDIS_TROUBLE):
                self.state.failed(result)
            elif result is not None:
                raise result
            else:
                joined = joined or shard
        return joined

    def _keep_crossings(self) -> None:
        """Bring seeds that users push to the shards, and what is of one shard, but in another, to that one."""
        if self.state.count > 1:
            self._outbox = SeedOutboxes(self.state)
            router = SeedRouter(self._outbox, self.state.count, requests_of(self.spider))
            self._carriers = [self._outbox.carrier]
            self._loops.start(self._keep_homes, router.route, self._outbox.carrier.look)
            # Also for spiders that this one finds requests for: perhaps none of their workers runs.
            for spider in (self.spider.name, *getattr(self.spider, "finds_for", ())):
                for shard in self.state.beside(spider).shards:
                    carrier = Carrier.of_shard(shard)
                    self._carriers.append(carrier)
                    self._loops.start(partial(self._carry, shard.number, carrier))
        elif self.state.is_shard:
            self._outbox = SeedOutbox(self.state)
            self._loops.start(self._outbox.forward)

    def _keep_overflow(self, store: str) -> None:
        """Spill and refill; also for spiders that this one finds requests for.

        Perhaps none of their workers runs, and what is found for them is not to stay in Redis.

        Raises:
            ConfigError: the store cannot be used at all.

        """
        try:
            packs = open_packs(store, self.crawler.settings)
        except Exception as error:  # whatever boto and the file system find wrong
            raise ConfigError(
                f"CRAWL_OVERFLOW_STORE={printable(store, 500)} cannot be used: {described(error)}"
            ) from None
        for spider in (None, *getattr(self.spider, "finds_for", ())):
            for shard in self.state.shards:
                overflow = Overflow(shard, packs, spider)
                self._loops.start(overflow.keep, overflow.keep_sweeping)

    async def _close(self) -> None:
        if not hasattr(self, "_loops"):
            return  # never opened
        self.leasing.wanted.set()
        for lane in self.queue.lanes:
            lane.settled.set()
        await self._loops.stop(grace=1.5)  # the longest step is a blocking read of 1 s
        for carrier in self._carriers:
            await carrier.stop()
        if self._outbox is not None:
            await self._outbox.close()
        self.worker.route.circuit.close()
        await self.robots.close()
        await self.resolver.close()
        self.queue.give_back_waiting()
        await self._store_last()
        unread = 0
        for result in await asyncio.gather(*map(self._leave, self.state.shards), return_exceptions=True):
            if isinstance(result, REDIS_TROUBLE):
                logger.error(
                    "Redis fails at shutdown; this worker's leases return when its heartbeat lapses: %s", result
                )
            elif isinstance(result, BaseException):
                raise result
            else:
                unread += result
        if unread:
            events = counted(unread, "event")
            logger.info("Waiting for a reader: %s; scrapy events results.jsonl appends them to a file", events)

    async def _store_last(self) -> None:
        """Store what was found, so that the leases that led there can end, whichever shards they are of."""
        for _ in range(_MOST_HOPS):
            shards = [shard for shard, waiting in self._new.items() if waiting]
            if any(await asyncio.gather(*map(self._store_new, shards), return_exceptions=True)):
                break  # `_leave` says so
        if self._unstored:
            logger.error(
                "%d requests could not be stored: those that were found are found again, start requests are lost",
                self._unstored,
            )

    async def _leave(self, shard: State) -> int:
        """Send a shard the last settlements and deregister there; return how many events have no reader."""
        await self._end_leases(shard.number)
        if returned := await shard.scripts.leave(self.state.worker_id):
            self.stats.inc_value("frontier/returned_at_close", returned)
        return await count_without_reader(shard)

    async def _disconnect(self) -> None:
        await self.state.close()

    def _wake(self) -> None:
        engine.wake(self.crawler)

    # Tasks

    async def _read_seeds(self, reader: SeedReader) -> None:
        if self.shutdown.has_begun:
            await asyncio.sleep(_LEASE_EVERY_S)
            return
        if not (self._homes.has(reader.state.number) or reader.unfinished):
            await asyncio.sleep(_LOOK_AGAIN_S)
            return
        await asyncio.sleep(await reader.read())

    async def _carry(self, shard: int, carrier: Carrier) -> None:
        """Bring what is in the outboxes of a shard that this worker leases from: else all ask all shards."""
        if not self._homes.has(shard):
            await asyncio.sleep(_LOOK_AGAIN_S)
            return
        await carrier.look()

    async def _lease(self, shard: int = 0) -> None:
        if self.shutdown.has_begun:
            self._stop_in_time()
            await asyncio.sleep(_LEASE_EVERY_S)
            return
        if self.leasing.paused:
            self._report("paused", self.leasing.paused, shard)
            self.queue.give_back_waiting()
            await asyncio.sleep(_LEASE_EVERY_S)
            return
        if self._unstored > _MOST_NEW:
            self._report("paused", self._why_unstored(), shard)
            await asyncio.sleep(_LEASE_EVERY_S)
            return
        if not self._homes.has(shard):
            await self._end_leases(shard)
            await asyncio.sleep(_LEASE_EVERY_S)
            return
        if (doubt := self.state.shards[shard].clock.valid_from - local_time()) > 0:
            await asyncio.sleep(min(doubt, _LEASE_EVERY_S))
            return
        is_full = not self.queue.may_fill(shard) or self.worker.download_budget.over_soft_limit
        if is_full or engine.is_busy(self.crawler):
            await asyncio.sleep(_LEASE_EVERY_S)
            return
        await self._end_leases(shard)  # back to back the two calls cost Redis less
        self.leasing.wanted.clear()
        reply = await self.queue.fill(shard)
        if self.resolver.outage:  # most of these leases come back
            await asyncio.sleep(_LOOK_AGAIN_S)
        if self.leasing.paused:  # since this call began
            self._report("paused", self.leasing.paused, shard)
        else:
            self._report(reply.state, reply.reason, shard)
        wait = _LOOK_AGAIN_S
        if reply.next_due is not None and reply.state == "ok":
            ahead = reply.next_due - asyncio.get_running_loop().time() - HORIZON_S / 2
            wait = min(max(ahead, _LEASE_EVERY_S), _LOOK_AGAIN_S)
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
            await asyncio.sleep(_LEASE_EVERY_S)

    async def _keep_homes(self) -> None:
        """Learn which shards this worker is the home of, from the workers of the first one; choose one to help.

        While this worker leases nothing, others are the homes of its shards.
        """
        self._homes.help_out(has_room=2 * self.queue.room > self.queue.most)
        now = asyncio.get_running_loop().time()
        rests = self.shutdown.has_begun or bool(self.leasing.paused)
        if now >= self._members_at or rests != self._rests:
            self._members_at, self._rests = now + _MEMBERS_EVERY_S, rests
            timeout = self.config.heartbeat_timeout
            self._homes.note(
                await self.state.scripts.alive(timeout=timeout, worker=self.state.worker_id, rests=rests)
            )
        await asyncio.sleep(_LOOK_AGAIN_S)

    async def _revisit(self, shard: State) -> None:
        """Store the requests for pages of a shard whose next look is due."""
        reply = (
            None
            if self.shutdown.has_begun
            else await shard.scripts.revisit(
                count=_REVISITED,
                high_water=shard.bounds.high_water,
                refuse_unknown=self.config.unknown_sources == "refuse",
            )
        )
        if reply is None:
            await asyncio.sleep(_LOOK_AGAIN_S)
            return
        requests, looked = reply
        if requests:
            self._drained, self._idle_since = False, None
            self.leasing.wanted.set()
        if looked < _REVISITED:
            await asyncio.sleep(_REVISIT_EVERY_S)

    async def _settle(self, shard: int = 0) -> None:
        """Settle what no lease call takes along in time."""
        await self.queue.lanes[shard].settled.wait()
        rest = self._ended_at[shard] + _SETTLE_EVERY_S - asyncio.get_running_loop().time()
        if rest > 0:
            await asyncio.sleep(rest)  # a lease call may take them along meanwhile
        else:
            await self._end_leases(shard)

    async def _end_leases(self, shard: int = 0) -> None:
        """Store what was found for a shard, and end the leases of it that may end.

        The requests found in a response are stored before its lease ends, so that none is lost in between. Each
        shard has those that are for it stored: while one is away only the leases wait that led there.
        """
        async with self._ending[shard]:
            await self._store_new(shard)
            self.queue.settle_ended()
            await self.queue.flush(self.queue.unsent(shard), shard)
            if self._new[shard]:
                self.queue.lanes[shard].settled.set()  # to try again
            self._ended_at[shard] = asyncio.get_running_loop().time()

    async def _store_new(self, number: int = 0) -> None:
        """Store the new requests that a shard is to have, unless it knows no catalogue that says whose they are.

        Those that it says are of another shard go there next.

        Raises:
            REDIS_TROUBLE: it fails. Those that pages led to have then gone where they wait for it.

        """
        waiting, shard = self._new[number], self.state.shards[number]
        options: dict[str, Any] = {
            "high_water": shard.bounds.high_water,
            "refuse_unknown": self.config.unknown_sources == "refuse",
        }
        while waiting:
            batch = list(islice(waiting, _ENQUEUE_BATCH))
            requests = [new.request for new in batch]
            try:
                found = await shard.scripts.enqueue_some(self.state.worker_id, requests, **options)
            except REDIS_TROUBLE:
                await self._send_new(number, options)
                raise
            if found is None:
                return
            for at, new in enumerate(batch):
                waiting.popleft()
                if at in found.elsewhere:
                    self._note_new(found.elsewhere[at], new)
                else:
                    self._note_stored(new)
            self.stats.inc_value("frontier/enqueued", found.reply.admitted)
            self.stats.inc_value("frontier/duplicates", found.reply.duplicates)
            self.leasing.wanted.set()

    async def _send_new(self, number: int, options: Mapping[str, Any]) -> None:
        """Have new requests for a shard that is away wait in the shards of the pages that led to them.

        So these can end. Beyond the bound of what waits so (see ShardsScripts) they wait here, and so do start
        requests, and those of pages whose shard is away, too.
        """
        by_home: dict[int, list[_New]] = {}
        for new in self._new[number]:
            if new.leases and new.leases[0].shard != number:
                by_home.setdefault(new.leases[0].shard, []).append(new)
        await asyncio.gather(*(self._send_from(home, number, some, options) for home, some in by_home.items()))

    async def _send_from(self, home: int, number: int, some: list[_New], options: Mapping[str, Any]) -> None:
        here = self.state.shards[home]
        for first in range(0, len(some), _ENQUEUE_BATCH):
            part = some[first : first + _ENQUEUE_BATCH]
            requests = [new.request for new in part]
            try:
                if not await send_requests(here, number, requests, options, most=here.bounds.overflow_maxlen):
                    return
            except REDIS_TROUBLE as error:
                self.state.failed(error)
                return
            sent = set(map(id, part))
            self._new[number] = deque(new for new in self._new[number] if id(new) not in sent)
            for new in part:
                self._note_stored(new)
            self.stats.inc_value("frontier/sent_to_absent_shards", len(part))
            self.queue.lanes[home].settled.set()

    def _note_stored(self, new: _New) -> None:
        self._unstored -= 1
        for lease in new.leases:
            lease.unstored -= 1

    async def _watch(self) -> None:
        """Notice when the whole frontier has been idle long enough for the spider to close."""
        await self._tell_of_spilled()
        patience = self.config.max_idle or (0.5 if self._is_alone or has_starts(self.spider) else 0.0)
        await asyncio.sleep(min(0.5, patience / 4) if patience else 1.0)
        if not patience:
            return
        now = asyncio.get_running_loop().time()
        if self._is_alone:
            self._drained = True  # nothing but its own requests
            self._wake()
        elif self.queue.leases or self._unstored or not await self._is_idle():
            self._idle_since, self._drained = None, False
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= patience:
            self._drained = True
            self._wake()

    async def _tell_of_spilled(self) -> None:
        """Say, once, that this worker cannot fetch what others have spilled, whoever was started first."""
        now = asyncio.get_running_loop().time()
        if self._is_alone or now < self._look_for_spilled_at:
            return
        self._look_for_spilled_at = now + _SPILLED_EVERY_S
        if spilled := sum([await count_spilled(shard) for shard in self.state.shards]):
            self._look_for_spilled_at = math.inf
            logger.warning(
                "%d requests of this frontier are in the store of another worker, and this one cannot fetch them: "
                "set CRAWL_OVERFLOW_STORE as that has it",
                spilled,
            )

    async def _is_idle(self) -> bool:
        """Tell whether no work is left.

        Shards are looked at one after the other, while requests may go from one to another: so all of them must be
        idle in two looks, and in between nothing have been sent, received or leased in any.
        """
        # First: seeds leave it for the frontier.
        if self._outbox is not None and not await self._outbox.is_empty():
            return False
        marks = []
        for shard in self.state.shards:
            found = await shard.scripts.idleness(halted_too=self.config.close_when_halted)
            if not found.is_idle:
                return False
            marks.append(found.marks)
        was_at_rest, self._marks = self.state.count == 1 or marks == self._marks, marks
        return was_at_rest

    def _why_unstored(self) -> str:
        if self.state.count == 1:
            return f"more than {_MOST_NEW} requests wait to be stored"
        most = max(self._new, key=lambda shard: len(self._new[shard]))
        return (
            f"more than {_MOST_NEW} requests wait to be stored, most of them in {shown(self.state.shards[most])}"
        )

    def _report(self, state: str, reason: str, shard: int = 0) -> None:
        """Log why nothing is leased of a shard, once per change."""
        what = reason if state == "paused" else state
        if what != self._reported[shard]:
            of = "" if self.state.count == 1 else f" of shard {shard}"
            if state == "ok":
                logger.info("Leasing%s resumed", of)
            elif state != "lapsed":
                logger.warning("Leasing%s paused: %s", of, reason)
            self._reported[shard] = what

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
        unparted = sent is not None and sent.meta.get(PROBE) != request.meta.get(PROBE)  # middlewares/probe.py
        source = codec.paced_as(request)
        return self.queue.give_back(lease, entry, source=source, domain=domain, answered=redirected or unparted)
