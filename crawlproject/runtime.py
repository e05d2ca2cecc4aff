"""What every room may need of its worker: background work; may it lease, did it stand still, does it shut down."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial

from scrapy.crawler import Crawler
from scrapy.statscollectors import MemoryStatsCollector

from crawlproject.errors import ConfigError
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.state.clock import uptime
from crawlproject.threads import end

PAUSES_EVERY_S = 0.25
_PAUSE_S = 1.0  # by which the loop is late; less is ordinary on a busy machine
_AFTER_TROUBLE_S = 1.0
_PROBE_S, _LONGEST_PROBE_S = 1.0, 60.0  # between probes; doubled each time

logger = logging.getLogger(__name__)


class Loops:
    """Tasks that repeat a step until they are stopped; when Redis fails, they wait and go on."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, *steps: Callable[[], Awaitable[None]]) -> None:
        """Repeat each of `steps` in a task of its own. A step contains its own waiting."""
        self._tasks += [asyncio.create_task(self._repeat(step)) for step in steps]

    async def stop(self, grace: float = 0.0) -> None:
        """End all tasks: give their current steps `grace` seconds, then cancel them."""
        self._stopping = True
        if grace and self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        await end(*self._tasks)

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        while not self._stopping:
            try:
                await step()
            except REDIS_TROUBLE as error:
                self.state.failed(error)
                await asyncio.sleep(_AFTER_TROUBLE_S)
            except Exception:
                logger.exception("Bug in %s; going on", _name_of(step))
                await asyncio.sleep(_AFTER_TROUBLE_S)


def _name_of(step: object) -> str:
    while isinstance(step, partial):
        step = step.func
    return getattr(step, "__qualname__", str(step))


class Leasing:
    """Whether this worker may lease: not while something that every request needs is missing.

    `wanted` is set when there may be something to lease.
    """

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self._reasons: list[str] = []

    @property
    def paused(self) -> str:
        """Why nothing is leased, in a sentence for the log; "" when leasing is not paused."""
        return self._reasons[0] if self._reasons else ""

    def pause(self, reason: str) -> None:
        """Lease nothing until `resume(reason)`; leases that have not started go back."""
        self._reasons.append(reason)

    def resume(self, reason: str) -> None:
        """Lease again, unless there is another reason not to."""
        self._reasons.remove(reason)
        self.wanted.set()


class Pauses:
    """The times in which this worker stood still: stopped, its machine suspended, or its loop held up for seconds.

    A download under way then says nothing about its site: neither a failure nor how long it took.
    """

    def __init__(self) -> None:
        self._seen, self._until = math.inf, -math.inf

    def look(self) -> None:
        """Note that the loop runs; to be called each `PAUSES_EVERY_S`."""
        now = uptime()
        if now - self._seen > PAUSES_EVERY_S + _PAUSE_S:
            self._until = asyncio.get_running_loop().time()
            logger.warning(
                "This worker stood still for %.1f s: what was under way does not count", now - self._seen
            )
        self._seen = now

    def overlap(self, began: float) -> bool:
        """Tell whether this worker stood still after `began` (`loop.time()`)."""
        self.look()
        return began <= self._until


class Stats(MemoryStatsCollector):
    """Scrapy's statistics, without its look for a deprecated argument at each use: some fifteen a request."""

    __getattribute__ = object.__getattribute__


class Shutdown:
    """The shutdown of this worker: whether it has begun, and whether its grace is over."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self.grace_over = asyncio.Event()

    @property
    def has_begun(self) -> bool:
        """Whether the engine takes no more requests. No signal says so while requests are in flight."""
        slot = self._crawler.engine._slot
        return slot is None or slot.closing is not None


class Runtime:
    """One worker as its lower rooms know it: its scheduler, which has the rest (frontier/scheduler.py)."""

    state: State
    leasing: Leasing
    shutdown: Shutdown
    pauses: Pauses


def runtime_of(crawler: Crawler) -> Runtime:
    """Return what the worker of a crawl that has opened its spider runs by.

    Raises:
        ConfigError: the crawl uses another scheduler.

    """
    scheduler = crawler.engine.scheduler
    if not isinstance(scheduler, Runtime):
        raise ConfigError("SCHEDULER must be crawlproject.frontier.scheduler.FrontierScheduler")
    return scheduler


class Breaker:
    """Pauses leasing from the moment it trips until a probe succeeds.

    `name` is its name in the statistics. `outage` says what is wrong; it is empty while nothing is.
    """

    def __init__(self, name: str, crawler: Crawler | None = None) -> None:
        self.name = name
        self.crawler = crawler
        self.outage = ""
        self._recovery: asyncio.Task[None] | None = None

    def trip(self, outage: str, probe: Callable[[], Awaitable[Exception | None]]) -> None:
        """Pause leasing until `probe` returns None; it is called at longer and longer intervals."""
        if self.outage:
            return
        self.count("down")
        self.outage = outage
        if self.crawler is not None:
            runtime_of(self.crawler).leasing.pause(outage)
        self._recovery = asyncio.create_task(self._recover(probe))

    def close(self) -> None:
        """End the probes."""
        if self._recovery is not None:
            self._recovery.cancel()

    def count(self, what: str) -> None:
        """Add one to a statistic."""
        if self.crawler is not None and self.crawler.stats is not None:
            self.crawler.stats.inc_value(f"{self.name}/{what}")

    async def _recover(self, probe: Callable[[], Awaitable[Exception | None]]) -> None:
        pause = _PROBE_S
        await asyncio.sleep(pause)
        while await probe() is not None:
            self.count("probes_failed")
            pause = min(2 * pause, _LONGEST_PROBE_S)
            await asyncio.sleep(pause)
        reason, self.outage = self.outage, ""
        if self.crawler is not None:
            runtime_of(self.crawler).leasing.resume(reason)
