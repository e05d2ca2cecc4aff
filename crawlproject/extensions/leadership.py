"""Has every worker stand for election."""

from __future__ import annotations

from typing import Self

from scrapy import signals
from scrapy.crawler import Crawler

from crawlproject import config
from crawlproject.frontier.worker import worker_of
from crawlproject.leader import Leader


class Leadership:
    """Starts and stops this worker's `Leader`, with the spider."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        crawler.signals.connect(self.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(self.spider_closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the extension of `crawler`."""
        return cls(crawler)

    def spider_opened(self) -> None:
        """Stand for election from now on."""
        self.leader = Leader(config.load(self.crawler.settings), worker_of(self.crawler).state)
        self.leader.start()

    async def spider_closed(self) -> None:
        """Stop, and let another worker lead at once."""
        await self.leader.stop()
