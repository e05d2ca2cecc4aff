"""Serves /metrics of a worker that has a port."""

from __future__ import annotations

import logging
from typing import Any

from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured

from crawlproject import config
from crawlproject.contrib.metrics.plugin import PORT, MetricsSettings
from crawlproject.errors import ConfigError
from crawlproject.extensions import Extension
from crawlproject.extensions.status_report import StatusReport
from crawlproject.frontier.scheduler import scheduler_of
from crawlproject.status.snapshot import CrawlSample

logger = logging.getLogger(__name__)

_running: list[Crawler] = []  # in this process; the first one serves /metrics


class WorkerMetrics(Extension):
    """/metrics of a worker, if it has a port."""

    def __init__(self, crawler: Crawler) -> None:
        self._settings = config.read(MetricsSettings, crawler.settings)
        self._served: Any = None
        if self._settings.port is None:
            raise NotConfigured
        super().__init__(crawler)

    def begin(self) -> None:
        """Begin to serve."""
        # Here: a web server is a twentieth of a start, and most workers have none.
        from crawlproject.contrib.metrics.collectors import CrawlCollector, WorkerCollector, registry
        from crawlproject.contrib.metrics.serving import Metrics
        from crawlproject.webserver import listen, url_of

        _running.append(self.crawler)
        address, port = self._settings.address, self._settings.port
        if port is None or len(_running) > 1:
            return
        worker = WorkerCollector(
            self.scheduler.spider.name,
            lambda name: sum(one.stats.get_value(name, 0) for one in _running if one.stats is not None),
            lambda: sum(len(scheduler_of(one).queue.leases) for one in _running),
        )
        try:
            metrics = Metrics(registry(CrawlCollector(_latest_samples), worker))
            self._served = listen(metrics, address, port, PORT)
            logger.info("Metrics at %s/metrics", url_of(address, port))
        except ConfigError as error:
            logger.error("%s; this worker runs without /metrics", error)

    async def spider_closed(self) -> None:
        """Stop."""
        _running.remove(self.crawler)
        if self._served is not None:
            from crawlproject.webserver import close

            await close(self._served)


def _latest_samples() -> dict[str, CrawlSample | None]:
    """Return the latest sample of each spider, which the crawler of the first shard takes."""
    found: dict[str, CrawlSample | None] = {}
    for crawler in _running:
        report = crawler.get_extension(StatusReport)
        latest = report.reporter.latest_samples() if report is not None else {}
        found |= {name: sample for name, sample in latest.items() if sample is not None}
    return found
