"""What the components of one worker share. The scheduler creates it when the spider opens."""

from __future__ import annotations

import gc
from dataclasses import dataclass

from scrapy import Spider
from scrapy.crawler import Crawler

from crawlproject.frontier.lease_queue import LeaseQueue
from crawlproject.net.resolver import Resolver
from crawlproject.robots.cache import RobotsCache
from crawlproject.runtime import Runtime, runtime_of

# In the environment of a process: the shard that this worker serves when it has executed itself again.
MOVES_TO = "_CRAWLPROJECT_MOVES_TO"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker(Runtime):
    """One worker: its connection to Redis, and what its requests need on their way."""

    spider: Spider
    resolver: Resolver
    robots: RobotsCache
    lease_queue: LeaseQueue


def worker_of(crawler: Crawler) -> Worker:
    """Return the worker of a crawl that has opened its spider.

    Raises:
        ConfigError: the crawl uses another scheduler.

    """
    worker = runtime_of(crawler)
    assert isinstance(worker, Worker)
    return worker


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
