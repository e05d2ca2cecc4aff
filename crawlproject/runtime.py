"""What every room may need of the worker that it runs in: may it lease, did it stand still, does it shut down."""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass

from scrapy.crawler import Crawler

from crawlproject.errors import ConfigError
from crawlproject.state.client import State
from crawlproject.state.clock import uptime

PAUSES_EVERY_S = 0.25
_PAUSE_S = 1.0  # by which the loop is late; less is ordinary on a busy machine

logger = logging.getLogger(__name__)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """One worker as its lower rooms know it; `frontier.worker.Worker` has the rest."""

    state: State
    leasing: Leasing
    shutdown: Shutdown
    pauses: Pauses


def runtime_of(crawler: Crawler) -> Runtime:
    """Return what the worker of a crawl that has opened its spider runs by.

    Raises:
        ConfigError: the crawl uses another scheduler.

    """
    runtime = getattr(crawler.engine.scheduler, "worker", None)
    if not isinstance(runtime, Runtime):
        raise ConfigError("SCHEDULER must be crawlproject.frontier.scheduler.FrontierScheduler")
    return runtime
