"""Reports what the crawl is doing: the leader's line, and /metrics of each worker."""

from __future__ import annotations

import logging
from typing import Any

from scrapy.crawler import Crawler
from scrapy.spiderloader import get_spider_loader

from crawlproject.errors import ConfigError
from crawlproject.extensions import Extension
from crawlproject.frontier.scheduler import scheduler_of
from crawlproject.metrics.collectors import CrawlCollector, WorkerCollector, registry
from crawlproject.status.reporter import Reporter
from crawlproject.status.snapshot import CrawlSample
from crawlproject.webserver import Metrics, close, listen, url_of

logger = logging.getLogger(__name__)

_running: list[StatusReport] = []  # of the crawlers in this process; the first one serves /metrics


class StatusReport(Extension):
    """Runs in every worker: the leader reports on all spiders; each serves /metrics if it has a port."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._served: Any = None

    def spider_opened(self) -> None:
        """Begin to report, and to serve."""
        worker = scheduler_of(self.crawler)
        self.reporter = Reporter(worker.state, get_spider_loader(self.crawler.settings).list())
        self.reporter.start()
        _running.append(self)
        if self.config.metrics_port is None or len(_running) > 1:
            return
        collectors = registry(
            CrawlCollector(_latest_samples),
            WorkerCollector(
                worker.spider.name,
                lambda name: sum(one.crawler.stats.get_value(name, 0) for one in _running),
                lambda: sum(len(scheduler_of(one.crawler).queue.leases) for one in _running),
            ),
        )
        address, port = self.config.metrics_address, self.config.metrics_port
        try:
            self._served = listen(Metrics(collectors), address, port, "CRAWL_METRICS_PORT")
            logger.info("Metrics at %s/metrics", url_of(address, port))
        except ConfigError as error:
            logger.error("%s; this worker runs without /metrics", error)

    async def spider_closed(self) -> None:
        """Stop."""
        _running.remove(self)
        await self.reporter.stop()
        if self._served is not None:
            await close(self._served)


def _latest_samples() -> dict[str, CrawlSample | None]:
    """Return the latest sample of each spider, which the crawler of the first shard takes."""
    found: dict[str, CrawlSample | None] = {}
    for one in _running:
        found |= {name: sample for name, sample in one.reporter.latest_samples().items() if sample is not None}
    return found
