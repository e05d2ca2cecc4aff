"""The leases that this worker holds."""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import random
import re
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from scrapy import Request, Spider
from scrapy.statscollectors import StatsCollector

from crawlproject.errors import BadEntry
from crawlproject.frontier import codec
from crawlproject.models import LEASE, SOURCE, Lease
from crawlproject.net.resolver import Resolver
from crawlproject.politeness.retry import delay as backoff
from crawlproject.politeness.slots import tolerance
from crawlproject.robots.cache import RobotsCache
from crawlproject.state.client import State
from crawlproject.state.scripts import LeaseReply, Settlement
from crawlproject.texts import printable

logger = logging.getLogger(__name__)

HORIZON = 0.25  # seconds ahead that send slots are reserved

_AT_ONCE = 64  # leases a call, ten of which there are in a second: more than a worker can start
_SETTLE_BATCH = 200
_MOST_PARKED = 64  # leases that wait for a robots.txt
_PARKED_ELSEWHERE = 0.5  # seconds that those beyond wait in Redis
_MAX_STAT_SOURCES = 1000
_LEASE_ID = re.compile(r"(\d{1,16})\.\d{1,16}:[^\s\udc80-\udcff]+")


class _Waiting(NamedTuple):
    slot: float
    number: int
    lease: Lease


class LeaseQueue:
    """Takes the place of scrapy-redis' queue: what Redis has leased to this worker, by send slot.

    A lease is *held* from its grant to its settlement: first waiting here for its slot, then started, in
    Scrapy's hands. `capacity` bounds the leases held; one source has at most a quarter of them while others
    have work, and three quarters at any time, so that a newcomer finds room. Whatever happens to a request,
    its lease ends in `settle`; settlements are collected here and sent by `flush`, and one that could not be
    sent is sent again.

    `wake` is called when a request may be ready. Nothing here waits for the network but the coroutines.
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
        self.capacity = capacity
        self.stats = stats
        self.wake = wake
        self.resolver = resolver
        self.robots = robots
        self.held: dict[str, Lease] = {}
        self.settled = asyncio.Event()  # something waits for `flush`
        self._waiting: list[_Waiting] = []
        self._parked: dict[str, asyncio.Task[None]] = {}  # by lease id
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for: float | None = None
        self._settlements: deque[Settlement] = deque()
        self._sending: list[Settlement] = []
        self._exchange = asyncio.Lock()  # leases on their way here are not yet known
        self._sources: set[str] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    # What Scrapy asks

    def pop(self) -> Request | None:
        """Return a request whose slot has come, None when there is none."""
        now = asyncio.get_running_loop().time()
        missed: list[Lease] = []
        try:
            return self._next(now, missed)
        finally:
            for lease in reversed(missed):  # each to the head of its queue: they keep their order
                self.give_back(lease)

    def _next(self, now: float, missed: list[Lease]) -> Request | None:
        while self._waiting and self._waiting[0].slot <= now:
            lease = heapq.heappop(self._waiting).lease
            if not self.is_fresh(lease):
                self.stats.inc_value("frontier/slots_missed")
                missed.append(lease)
                continue
            try:
                request = codec.decode(lease.entry, self.spider)
            except BadEntry as error:
                source = printable(lease.source)
                logger.error(
                    "Dead letter of source %s: %s", source, printable(str(error)), extra={"source": source}
                )
                self.settle(
                    lease, Settlement(lease.id, lease.source, lease.entry, dead=str(error), counts={"failed": 1})
                )
                continue
            if not self._may_decide(request.url, lease.source):
                self._park(lease, request.url)
                continue
            request.meta[LEASE] = lease
            request.meta.setdefault(SOURCE, lease.source)
            lease.request = request
            return request
        self._arm()
        return None

    def _may_decide(self, url: str, source: str) -> bool:
        """Tell whether all is known that decides on a request: its host's addresses, and its robots.txt."""
        if not self.resolver.may_be_asked(url):  # nobody asks such a host for its robots.txt
            return self.resolver.knows(url)
        return self.robots.knows(url, source)

    def _park(self, lease: Lease, url: str) -> None:
        """Keep a lease until its host and its robots.txt are known, then return it for a new slot; a few wait.

        While no name server answers those of unknown hosts go back as at a store that is down, nothing counted.
        """
        if self.resolver.trouble and not self.resolver.knows(url):
            self._put_off(lease)
            return
        if len(self._parked) >= _MOST_PARKED:
            self.give_back(lease, delay=_PARKED_ELSEWHERE)
            return

        async def wait() -> None:
            known: object = False
            try:
                await self.resolver.look_up(url)
                if not self.resolver.knows(url):
                    self._put_off(lease)
                    return
                known = self._may_decide(url, lease.source) or await self.robots.look_up(url, lease.source)
            except Exception:
                logger.exception("Bug in looking up a host of source %s", lease.source)
            self.give_back(lease, delay=0.0 if known else _PARKED_ELSEWHERE)

        self.stats.inc_value("robots/parked")
        task = self._parked[lease.id] = asyncio.create_task(wait())
        task.add_done_callback(lambda _: self._parked.pop(lease.id, None))

    def _put_off(self, lease: Lease) -> None:
        self.stats.inc_value("names/returned")
        self.give_back(lease, delay=backoff(1, 0.0, self.state.config, random.random()))

    @staticmethod
    def is_fresh(lease: Lease) -> bool:
        """Tell whether the slot of a lease may still be used."""
        return asyncio.get_running_loop().time() <= lease.latest

    def _arm(self) -> None:
        """Have the engine woken at the next slot."""
        slot = self._waiting[0].slot if self._waiting else None
        if slot == self._armed_for:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if slot is not None:
            # uvloop counts in whole milliseconds. Rounded down, it would wake the engine too early, over and over.
            whole = math.ceil(slot * 1000) / 1000
            self._timer = asyncio.get_running_loop().call_at(whole, self._at_slot)
        self._armed_for = slot

    def _at_slot(self) -> None:
        self._timer = self._armed_for = None
        self.wake()

    # How leases end

    def settle(self, lease: Lease, settlement: Settlement) -> bool:
        """End `lease` as `settlement` says; False if it had ended before."""
        if self.held.pop(lease.id, None) is None:
            return False
        lease.request = None
        self._settlements.append(settlement)
        self.settled.set()
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

        With `domain`, it goes to the source that the catalogue gives that domain; with `delay`, for a slot
        after so many seconds. `answered`: the site has, by a redirect. `counts` are added to those of the source.
        """
        settlement = Settlement(
            lease.id,
            source or lease.source,
            entry or lease.entry,
            domain=domain,
            delay=delay,
            answered=answered,
            counts=counts or {},
        )
        return self.settle(lease, settlement)

    def give_back_waiting(self) -> None:
        """Return all leases that have not started; at the end of a crawl."""
        for waiting in sorted(self._waiting, reverse=True):  # the last first: they keep their order
            self.give_back(waiting.lease)
        self._waiting.clear()
        for name, task in list(self._parked.items()):
            task.cancel()
            if name in self.held:
                self.give_back(self.held[name])

    def give_back_all(self) -> None:
        """Return every lease; what still comes of those that have started finds them gone."""
        for lease in sorted(self.held.values(), key=lambda lease: lease.slot, reverse=True):
            self.give_back(lease)

    def _hold_back(self, sources: set[str]) -> None:
        """Return the leases of `sources` that have not started: they are halted by now, or held."""
        stopped = sorted((waiting for waiting in self._waiting if waiting.lease.source in sources), reverse=True)
        self._waiting = [waiting for waiting in self._waiting if waiting.lease.source not in sources]
        heapq.heapify(self._waiting)
        for waiting in stopped:  # the last first: they keep their order
            self.give_back(waiting.lease)

    def forget_waiting(self) -> None:
        """Drop all leases that have not started: this worker lapsed, and they are others' by now."""
        for waiting in self._waiting:
            self.held.pop(waiting.lease.id, None)
        self._waiting.clear()

    # Exchange with Redis

    async def fill(self) -> LeaseReply:
        """Lease what there is room for."""
        config = self.state.config
        async with self._exchange:
            reply = await self.state.scripts.lease(
                self.state.worker,
                min(self.room, _AT_ONCE),
                cap=max(self.capacity // 4, 1),
                cap_alone=max(self.capacity * 3 // 4, 1),
                holding=Counter(lease.source for lease in self.held.values()),
                horizon=HORIZON,
                dead_maxlen=config.dead_maxlen,
                max_deliveries=config.max_deliveries,
                refuse_unknown=config.unknown_sources == "refuse",
            )
            urls = []
            for grant in reply.grants:
                self._number += 1
                latest = grant.slot + tolerance(grant.rate)
                lease = Lease(grant.id, grant.slot, latest, codec.deliveries_of(grant.entry), grant.entry)
                self.held[lease.id] = lease
                heapq.heappush(self._waiting, _Waiting(lease.slot, self._number, lease))
                if isinstance(url := codec.peek(grant.entry).get("url"), str):
                    urls.append((url, lease.source))
        if reply.grants:
            self.stats.inc_value("frontier/leased", len(reply.grants))
            await self.resolver.prepare(url for url, _ in urls)
            await self.robots.prepare(pair for pair in urls if self.resolver.may_be_asked(pair[0]))
            self._arm()
        return reply

    @property
    def room(self) -> int:
        """Leases that may still be taken; none beside a suspect, which is kept alone (see lease.lua)."""
        last = max(self.state.config.max_deliveries - 1, 1)
        if len(self.held) == 1 and next(iter(self.held.values())).deliveries >= last:
            return 0
        return self.capacity - len(self.held)

    async def flush(self) -> None:
        """Send all settlements."""
        self.settled.clear()
        while self._sending or self._settlements:
            while self._settlements and len(self._sending) < _SETTLE_BATCH:
                self._sending.append(self._settlements.popleft())
            reply = await self.state.scripts.settle(
                self.state.worker,
                self._sending,
                latency_backoff=self.state.config.strain,
                refuse_unknown=self.state.config.unknown_sources == "refuse",
            )
            for settlement, known in zip(self._sending, reply.settled, strict=True):
                self._count(settlement, known)
            self._sending.clear()
            if reply.held_back:
                self._hold_back(set(reply.held_back))

    def _count(self, settlement: Settlement, known: bool) -> None:
        if not known:
            self.stats.inc_value("frontier/settled_stale")
            return
        if settlement.event is not None:
            self.stats.inc_value("frontier/done")
        elif settlement.dead is not None:
            self.stats.inc_value("frontier/dead")
        else:
            self.stats.inc_value("frontier/returned")
        source = settlement.source
        if settlement.counts and source not in self._sources:
            if len(self._sources) < _MAX_STAT_SOURCES:
                self._sources.add(source)
            else:
                source = "(others)"
        for name, count in settlement.counts.items():
            self.stats.inc_value(f"crawl/{source}/{name}", count)

    async def reconcile(self) -> int:
        """Return leases that Redis counts as ours and that never arrived; return their number.

        That is what a lease call leaves behind when its reply is lost.
        """
        async with self._exchange:
            stored: dict[Any, Any] = await self.state.redis.hgetall(self.state.keys.leases_of + self.state.worker)
            ending = {settlement.id for settlement in (*self._sending, *self._settlements)}
            named = ((name.decode(errors="surrogateescape"), entry) for name, entry in stored.items())
            lost = {name: entry for name, entry in named if name not in self.held and name not in ending}
            ours = {name: int(match[1]) for name in lost if (match := _LEASE_ID.fullmatch(name))}
            for name in sorted(ours, key=lambda name: -ours[name]):
                self._settlements.append(Settlement(name, name.partition(":")[2], lost[name]))
            for name in lost.keys() - ours.keys():
                self._settlements.append(
                    Settlement(name, "", lost[name], dead="lease not written by crawlproject")
                )
        if lost:
            self.stats.inc_value("frontier/leases_reconciled", len(lost))
            self.settled.set()
        return len(lost)
