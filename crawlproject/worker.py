"""What the components of one worker share. The scheduler creates it when the spider opens."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crawlproject import engine
from crawlproject.errors import ConfigError

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler

    from crawlproject.frontier.homes import Homes
    from crawlproject.frontier.lease_queue import LeaseQueue
    from crawlproject.net.download_budget import DownloadBudget
    from crawlproject.net.resolver import Resolver
    from crawlproject.net.route import Route
    from crawlproject.robots.cache import RobotsCache
    from crawlproject.state.client import State


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
    homes: Homes
    download_budget: DownloadBudget
    leasing: Leasing
    shutdown: Shutdown
    joined: set[int] = field(default_factory=set)  # shards that have it among their workers, as far as it knows


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
