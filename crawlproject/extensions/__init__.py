"""What runs beside the flow, in every worker."""

from __future__ import annotations

from typing import Self

from scrapy import signals
from scrapy.crawler import Crawler

from crawlproject import config
from crawlproject.frontier.scheduler import FrontierScheduler, scheduler_of
from crawlproject.runtime import Loops


class Extension:
    """An extension that works from the opening of the spider until it is closed: its `loops` are stopped then.

    `scheduler` has what the components of this worker share.
    """

    scheduler: FrontierScheduler
    loops: Loops

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.config = config.load(crawler.settings)
        crawler.signals.connect(self.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(self.spider_closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the extension of `crawler`."""
        return cls(crawler)

    def spider_opened(self) -> None:
        """Begin to work."""
        self.scheduler = scheduler_of(self.crawler)
        self.loops = Loops(self.scheduler.state)
        self.begin()

    def begin(self) -> None:
        """Start the steps that are repeated."""
        raise NotImplementedError

    async def spider_closed(self) -> None:
        """Stop."""
        await self.loops.stop()
