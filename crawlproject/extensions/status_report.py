"""Reports what the crawl is doing: the leader's line."""

from __future__ import annotations

from scrapy.spiderloader import get_spider_loader

from crawlproject.extensions import Extension
from crawlproject.status.reporter import Reporter


class StatusReport(Extension):
    """Runs in every worker: the leader reports on all spiders."""

    reporter: Reporter

    def begin(self) -> None:
        """Begin to report."""
        self.reporter = Reporter(self.scheduler.state, get_spider_loader(self.crawler.settings).list())
        self.reporter.start()

    async def spider_closed(self) -> None:
        """Stop."""
        await self.reporter.stop()
