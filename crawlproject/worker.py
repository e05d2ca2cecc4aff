"""What the components of one worker share. The scheduler creates it when the spider opens."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crawlproject import engine
from crawlproject.errors import ConfigError

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler

    from crawlproject.frontier.lease_queue import LeaseQueue
    from crawlproject.net.download_budget import DownloadBudget
    from crawlproject.net.resolver import Resolver
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
    robots: RobotsCache
    lease_queue: LeaseQueue
    download_budget: DownloadBudget
    leasing: Leasing
    shutdown: Shutdown


def worker_of(crawler: Crawler) -> Worker:
    """Return the worker of a crawl that has opened its spider.

    Raises:
        ConfigError: the crawl uses another scheduler.

    """
    worker = getattr(crawler.engine.scheduler, "worker", None)
    if not isinstance(worker, Worker):
        raise ConfigError("SCHEDULER must be crawlproject.frontier.scheduler.FrontierScheduler")
    return worker
