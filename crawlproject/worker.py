"""What the components of one worker share. The scheduler creates it when the spider opens."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crawlproject import engine
from crawlproject.errors import ConfigError
from crawlproject.state.clock import uptime

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler

    from crawlproject.frontier.lease_queue import LeaseQueue
    from crawlproject.net.download_budget import DownloadBudget
    from crawlproject.net.resolver import Resolver
    from crawlproject.net.route import Route
    from crawlproject.robots.cache import RobotsCache
    from crawlproject.state.client import State


# In the environment of a process: the shard that this worker serves when it has executed itself again.
MOVES_TO = "_CRAWLPROJECT_MOVES_TO"

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
        """Whether the engine takes no more requests."""
        return engine.is_closing(self._crawler)


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker: its connection to Redis, and what its requests need on their way."""

    spider: Spider
    state: State
    resolver: Resolver
    route: Route
    robots: RobotsCache
    lease_queue: LeaseQueue
    download_budget: DownloadBudget
    leasing: Leasing
    shutdown: Shutdown
    pauses: Pauses = field(default_factory=Pauses)


_YOUNGER_COLLECTIONS = 100  # between two full ones; Python's default is 10


def collect_rarely() -> None:
    """Have Python look through all objects a tenth as often, and never again through those of the start.

    With a few thousand requests in progress a full collection of garbage takes 0.1 s and more. That is longer than
    a fast source's slots may be late (politeness/slots.py), so that it lost a dozen of them every five seconds.
    Little was found: most cycles end in the younger collections.
    """
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _YOUNGER_COLLECTIONS)


def worker_of(crawler: Crawler) -> Worker:
    """Return the worker of a crawl that has opened its spider.

    Raises:
        ConfigError: the crawl uses another scheduler.

    """
    worker = getattr(crawler.engine.scheduler, "worker", None)
    if not isinstance(worker, Worker):
        raise ConfigError("SCHEDULER must be crawlproject.frontier.scheduler.FrontierScheduler")
    return worker
