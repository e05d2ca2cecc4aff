"""The leases that this worker holds."""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

from scrapy import Request, Spider
from scrapy.statscollectors import StatsCollector
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.spider import iterate_spider_output
from twisted.python.failure import Failure

from crawlproject.errors import BadEntry
from crawlproject.frontier import codec
from crawlproject.frontier.contents import stored_leases
from crawlproject.frontier.shares import Pace, Shares
from crawlproject.models import LEASE, LED_BY, PACED_AS, SOURCE, Lease
from crawlproject.net.resolver import Resolver
from crawlproject.politeness.outcomes import delay as backoff
from crawlproject.politeness.slots import HORIZON_S
from crawlproject.robots.cache import RobotsCache
from crawlproject.sources.domains import domain_of_url
from crawlproject.state.calls import LeaseReply, Settlement
from crawlproject.state.client import State
from crawlproject.texts import printable

logger = logging.getLogger(__name__)

_MAX_WAITING = 256  # leases that wait for their slot: what a worker can start within the horizon, and a bit more
_SETTLE_BATCH = 200
_SETTLE_BYTES = 2_000_000  # of events, after which a batch is full: Redis takes 100 ms for it
PATIENCE_S = 0.75  # that settlements may wait which are not needed soon: until every other lease call
_WAIT_IN_REDIS_S = 0.5  # for the addresses of a host; of newcomers beyond their share


class _Waiting(NamedTuple):
    slot: float
    number: int
    lease: Lease
    request: Request
    in_time: bool  # it came here before its slot had passed


class LeaseQueue:
    """Takes the place of scrapy-redis' queue: what Redis has leased to this worker, by send slot.

    A lease is in `leases` from its grant to its settlement: first it waits here for its slot, then Scrapy has its
    request. `capacity` bounds the latter, `_MAX_WAITING` the former; `shares` says how many of all each source may
    have, `pace` how many this worker comes to in time. Whatever happens to a request, its lease ends in `settle`;
    `flush` sends the collected settlements, and sends them again when that fails.

    `wake` is called when a request may be ready. Only the coroutines wait for the network.
    """

    def __init__(
        self,
        state: State,
        spider: Spider,
        capacity: int,
        stats: StatsCollector,
        wake: Callable[[], None],
        resolver: Resolver,
        robots: RobotsCache,
    ) -> None:
        self.state = state
        self.spider = spider
        self.shares = Shares(capacity)
        self.pace = Pace()
        self.stats = stats
        self.wake = wake
        self.resolver = resolver
        self.robots = robots
        self.leases: dict[str, Lease] = {}
        self.settled = asyncio.Event()  # there is something to send
        self._settlements: deque[Settlement] = deque()
        self._suspects: set[str] = set()  # of these settlements: the leases of requests that were lost before
        self._sending: list[Settlement] = []
        self._flushing = asyncio.Lock()
        self._exchange = asyncio.Lock()  # held during a lease call: its leases are not in `leases` yet
        # The lease keeper's: whether an errback is left out of a failure; what settles the leases that have ended.
        self.is_settled: Callable[[Lease, Failure], bool] = lambda lease, failure: False
        self.settle_ended: Callable[[], None] = lambda: None
        self._waiting: list[_Waiting] = []
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for: float | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    # Scrapy's side

    def pop(self) -> Request | None:
        """Return a request whose slot has come; None if no slot has."""
        now = asyncio.get_running_loop().time()
        missed: list[Lease] = []
        try:
            return self._next(now, missed)
        finally:
            for lease in reversed(missed):  # each to the head of its queue, so that they keep their order
                self.give_back(lease)

    def _next(self, now: float, missed: list[Lease]) -> Request | None:
        while self._waiting and self._waiting[0].slot <= now:
            *_, lease, request, in_time = heapq.heappop(self._waiting)
            if not (lease.is_fresh(now) and self.state.clock.permits(lease.slot)):
                self.stats.inc_value("frontier/slots_missed")
                if in_time and not lease.revoked:
                    self.pace.miss()
                missed.append(lease)
                continue
            self.pace.keep_up()
            if not self._is_decidable(request.url, lease.source):
                self._put_off(lease, request.url)
                continue
            request.meta[LEASE] = lease
            request.meta.setdefault(SOURCE, lease.source)
            if "redirect_urls" not in request.meta:
                request.meta[PACED_AS] = lease.source
            request.errback = LeasedErrback(request.errback, lease, self.is_settled)
            lease.request = request
            lease.started = now
            self.shares.start(lease.source, now)
            return request
        self._arm()
        return None

    def _is_decidable(self, url: str, source: str) -> bool:
        """Tell whether everything that decides on a request is known: its host's addresses and its robots.txt."""
        if not self.resolver.may_be_reached(url):  # then the robots.txt is not fetched
            return self.resolver.knows(url)
        return self.robots.knows(url, source)

    def _put_off(self, lease: Lease, url: str) -> None:
        """Return a lease until its host's addresses and robots.txt are known, which are looked up meanwhile."""
        if self.resolver.may_be_reached(url):
            delay = self.robots.put_off(url, lease.source)
        elif self.resolver.outage:
            self.stats.inc_value("resolver/returned")
            delay = backoff(1, 0.0, self.state.config, random.random())
        else:
            delay = _WAIT_IN_REDIS_S
        self.stats.inc_value("frontier/put_off")
        self.give_back(lease, delay=delay)

    def _turn_away(self, lease: Lease) -> None:
        """Return a lease for which there is no place among those of hosts that have not answered yet."""
        self.stats.inc_value("frontier/turned_away")
        self.give_back(lease, delay=_WAIT_IN_REDIS_S)
        self.shares.turn_away(lease.source, asyncio.get_running_loop().time())

    def _arm(self) -> None:
        """Have the engine woken at the next slot."""
        slot = self._waiting[0].slot if self._waiting else None
        if slot == self._armed_for:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if slot is not None:
            # uvloop rounds timers down to whole milliseconds: the engine would wake too early, again and again.
            rounded_up = math.ceil(slot * 1000) / 1000
            self._timer = asyncio.get_running_loop().call_at(rounded_up, self._at_slot)
        self._armed_for = slot

    def _at_slot(self) -> None:
        self._timer = self._armed_for = None
        self.wake()

    # How leases end

    def settle(self, lease: Lease, settlement: Settlement) -> bool:
        """End `lease` as `settlement` says; False if it has ended before."""
        was_requested = settlement.fine is not None or settlement.answered
        if not self._drop(lease, was_requested, answered=settlement.answered or settlement.latency is not None):
            return False
        lease.revoked = True  # its slot may be given out again
        if lease.deliveries:
            self._suspects.add(lease.id)
        settlement.unsent = lease.at if self.state.delay and not lease.sent else None
        settlement.requested = lease.requested
        self._add(settlement)
        return True

    def _add(self, settlement: Settlement) -> None:
        self._settlements.append(settlement)
        self.settled.set()

    def _drop(self, lease: Lease, was_requested: bool = False, *, answered: bool = False) -> bool:
        if self.leases.pop(lease.id, None) is None:
            return False
        latency = None
        if was_requested and lease.started is not None and lease.fetched is not None:
            latency = lease.fetched - lease.started
        self.shares.end(
            lease.source,
            asyncio.get_running_loop().time(),
            started=lease.started is not None,
            latency=latency,
            answered=answered,
        )
        lease.request = None
        return True

    def give_back(
        self,
        lease: Lease,
        entry: bytes | None = None,
        *,
        source: str | None = None,
        domain: str | None = None,
        delay: float = 0.0,
        answered: bool = False,
        counts: Mapping[str, int] | None = None,
    ) -> bool:
        """Return `lease` to the head of its queue for a new slot, or `entry` in its place to that of `source`.

        With `domain`, it goes to the source that the catalogue gives that domain. With `delay`, its slot comes at
        least that many seconds later; without, its source gets back a slot for which nothing has been done yet.
        `answered`: the site has answered, with a redirect. `counts` are added to those of the source.
        """
        settlement = Settlement(
            lease.id,
            source or lease.source,
            entry or lease.entry,
            domain=domain,
            delay=delay,
            answered=answered,
            counts=counts or {},
            unused=None if lease.spent or delay else (lease.at, lease.rate),
        )
        return self.settle(lease, settlement)

    def give_back_waiting(self, sources: set[str] | None = None) -> None:
        """Return the leases that have not started, or those of `sources`: the last first, to keep their order."""
        returned = [one for one in self._waiting if sources is None or one.lease.source in sources]
        self._waiting = [one for one in self._waiting if sources is not None and one.lease.source not in sources]
        heapq.heapify(self._waiting)
        for waiting in sorted(returned, reverse=True):
            self.give_back(waiting.lease)

    def give_back_all(self) -> None:
        """Return every lease; the results of requests under way come too late, and are dropped."""
        for lease in sorted(self.leases.values(), key=lambda lease: lease.slot, reverse=True):
            self.give_back(lease)

    def forget_waiting(self) -> None:
        """Drop all leases that have not been sent: this worker lapsed, and others may have them."""
        for waiting in self._waiting:
            self._drop(waiting.lease)
        self._waiting.clear()
        for lease in self.leases.values():
            lease.revoked = True

    # Exchange with Redis

    async def fill(self) -> LeaseReply:
        """Lease as many requests as there is room for."""
        async with self._exchange:
            reply = await self._lease()
            urls = []
            arrived = asyncio.get_running_loop().time()
            for lease in reply.grants:
                self.leases[lease.id] = lease
                if not self.shares.grant(lease.source, lease.rate):
                    self._turn_away(lease)
                    continue
                if (request := self._decoded(lease)) is None:
                    continue
                self._number += 1
                heapq.heappush(
                    self._waiting, _Waiting(lease.slot, self._number, lease, request, lease.is_fresh(arrived))
                )
                urls.append((request.url, lease.source))
            for stray in reply.strays:
                self._send_home(stray)
            if not self.state.clock.permits(arrived):
                self.give_back_waiting()
        if reply.grants:
            self.stats.inc_value("frontier/leased", len(reply.grants))
            await self.resolver.prepare(url for url, _ in urls)
            await self.robots.prepare(pair for pair in urls if self.resolver.may_be_reached(pair[0]))
            self._arm()
        return reply

    async def _lease(self) -> LeaseReply:
        rooms, room = self.shares.rooms(asyncio.get_running_loop().time(), self.robots.under_way)
        return await self.state.scripts.lease(
            self.state.worker_id,
            min(self.room, self.pace.next()),
            rooms=rooms,
            room=room,
            suspect=bool(self._suspects) or any(lease.deliveries for lease in self.leases.values()),
            horizon=HORIZON_S,
        )

    def _send_home(self, stray: Lease) -> None:
        """Return a request that waited with a source that it does not belong to by now to where it belongs."""
        try:
            request = codec.decode(stray.entry, self.spider)
        except BadEntry as error:
            self._add(_undecodable(stray, error))
        else:
            self.stats.inc_value("frontier/sent_home")
            domain, name = domain_of_url(request.url), codec.named_source(request)
            self._add(Settlement(stray.id, stray.source, stray.entry, domain=domain, name=name, stray=True))

    def _decoded(self, lease: Lease) -> Request | None:
        """Return the request of a lease; None if it cannot be decoded, and becomes a dead letter."""
        try:
            return codec.decode(lease.entry, self.spider)
        except BadEntry as error:
            self.settle(lease, _undecodable(lease, error))
            return None

    @property
    def room(self) -> int:
        """How many more leases may be taken."""
        in_flight = len(self.leases) - len(self._waiting) + self.robots.under_way
        return min(self.shares.capacity - in_flight, _MAX_WAITING) - len(self._waiting)

    @property
    def unsent(self) -> int:
        """How many settlements wait for the next `flush`."""
        return len(self._settlements)

    @property
    def is_needed(self) -> bool:
        """Whether one of these may open a circuit, slows its source down, has its request go out again now, or is
        of a request that was lost before.
        """
        return bool(self._suspects) or any(
            one.fine is False or one.slows or not (one.event or one.done or one.dead or one.delay)
            for one in self._settlements
        )

    async def flush(self, count: int | None = None) -> None:
        """Send all settlements, or the next `count`, besides those that could not be sent before."""
        async with self._flushing:
            await self._flush(len(self._settlements) if count is None else count)

    async def _flush(self, count: int) -> None:
        self.settled.clear()
        try:
            while self._sending or (count > 0 and self._settlements):
                size = 0
                while (
                    count > 0 and self._settlements and len(self._sending) < _SETTLE_BATCH and size < _SETTLE_BYTES
                ):
                    self._sending.append(self._settlements.popleft())
                    size += self._sending[-1].size
                    count -= 1
                await self._send()
        finally:
            if self._sending or self._settlements:
                self.settled.set()

    async def _send(self) -> None:
        reply = await self.state.scripts.settle(self.state.worker_id, self._sending)
        for settlement, known in zip(self._sending, reply.settled, strict=True):
            self._count(settlement, known)
            self._suspects.discard(settlement.id)
        self._sending.clear()
        if held_back := set(reply.held_back):  # these sources were halted or held meanwhile
            for lease in self.leases.values():
                # One whose connection is being made returns when it is there.
                lease.revoked |= lease.source in held_back
            self.give_back_waiting(held_back)

    def _count(self, settlement: Settlement, known: bool) -> None:
        ended = "done" if settlement.event or settlement.done else "dead" if settlement.dead else "returned"
        self.stats.inc_value(f"frontier/{ended if known else 'settled_stale'}")

    async def reconcile(self) -> int:
        """Give back leases that Redis counts as this worker's but that never arrived; return their number.

        A lease call leaves such leases behind when its reply is lost.
        """
        async with self._exchange:
            stored = await stored_leases(self.state)
            ending = {settlement.id for settlement in (*self._sending, *self._settlements)}
            lost = {
                name: entry for name, entry in stored.items() if name not in self.leases and name not in ending
            }
            for name in sorted(lost, key=lambda name: -int(name.partition(".")[0])):  # they keep their order
                self._add(Settlement(name, name.partition(":")[2], lost[name]))
        if lost:
            self.stats.inc_value("frontier/leases_reconciled", len(lost))
        return len(lost)


class LeasedErrback:
    """Takes the place of a request's errback, `own`, while the request is leased.

    `is_settled` says whether nobody else is to learn of the failure: the request is tried again, say. As with
    Scrapy's retries, the spider's errback is called once, when the request has been given up. The lease ends when
    the requests that it yields are stored: they name it, as those of a callback do.
    """

    def __init__(
        self,
        own: Callable[[Failure], Any] | None,
        lease: Lease,
        is_settled: Callable[[Lease, Failure], bool],
    ) -> None:
        self.own = own
        self._lease = lease
        self._is_settled = is_settled

    def __call__(self, failure: Failure) -> Any:
        """Return what the spider's errback returns; the failure itself where there is none."""
        if self._is_settled(self._lease, failure):
            return None
        output = failure if self.own is None else self.own(failure)
        return output if output is None or isinstance(output, Failure) else self._found(output)

    async def _found(self, output: Any) -> AsyncIterator[Any]:
        found = await ensure_awaitable(iterate_spider_output(output))
        if isinstance(found, AsyncIterator):
            async for one in found:
                yield self._of_its_own(one)
        else:
            for one in found:
                yield self._of_its_own(one)

    def _of_its_own(self, one: Any) -> Any:
        if isinstance(one, Request):
            one.meta[LED_BY] = self._lease
        return one


def _undecodable(lease: Lease, error: BadEntry) -> Settlement:
    """Return the end of a lease whose request cannot be decoded: a dead letter."""
    shown = printable(lease.source)
    logger.error("Dead letter of source %s: %s", shown, printable(str(error)), extra={"source": shown})
    return Settlement(lease.id, lease.source, lease.entry, dead=str(error), counts={"failed": 1})
