"""Reports what the crawl is doing: the leader's line, and /metrics of each worker."""

from __future__ import annotations

import logging
from typing import Any, Self

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.spiderloader import get_spider_loader

from crawlproject import config
from crawlproject.errors import ConfigError
from crawlproject.metrics.collectors import CrawlsCollector, WorkerCollector, registry
from crawlproject.status.reporter import Reporter
from crawlproject.webserver import Metrics, close, listen, url_of
from crawlproject.worker import worker_of

logger = logging.getLogger(__name__)


class StatusReport:
    """Runs in every worker: the leader reports on all spiders; each serves /metrics if it has a port."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.config = config.load(crawler.settings)
        self._served: Any = None
        crawler.signals.connect(self.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(self.spider_closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the extension of `crawler`."""
        return cls(crawler)

    def spider_opened(self) -> None:
        """Begin to report, and to serve."""
        worker = worker_of(self.crawler)
        self.reporter = Reporter(self.config, worker.state, get_spider_loader(self.crawler.settings).list())
        self.reporter.start()
        if self.config.metrics_port is None:
            return
        spider = worker.spider.name
        stats = self.crawler.stats
        collectors = registry(
            CrawlsCollector(self.reporter.latest_samples),
            WorkerCollector(spider, lambda name: stats.get_value(name, 0), lambda: len(worker.lease_queue.leases)),
        )
        address, port = self.config.metrics_address, self.config.metrics_port
        try:
            self._served = listen(
                Metrics(collectors, self.config.metrics_hosts), address, port, "CRAWL_METRICS_PORT"
            )
            logger.info("Metrics at %s/metrics", url_of(address, port))
        except ConfigError as error:
            logger.error("%s; this worker runs without /metrics", error)

    async def spider_closed(self) -> None:
        """Stop."""
        await self.reporter.stop()
        if self._served is not None:
            await close(self._served)
