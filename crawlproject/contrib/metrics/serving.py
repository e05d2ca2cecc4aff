"""Serves /metrics: of the whole crawl in `scrapy monitor`, of itself too in each worker that has a port."""

from __future__ import annotations

import logging
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.settings import BaseSettings

from crawlproject import config
from crawlproject.contrib.metrics.collectors import CrawlCollector, WorkerCollector, registry
from crawlproject.contrib.metrics.plugin import PORT, MetricsSettings
from crawlproject.errors import ConfigError
from crawlproject.extensions import Extension
from crawlproject.extensions.status_report import StatusReport
from crawlproject.frontier.scheduler import scheduler_of
from crawlproject.status.reporter import Reporter
from crawlproject.status.service import Service
from crawlproject.status.snapshot import CrawlSample
from crawlproject.webserver import Resource, check_port, close, host_of, is_address, listen, url_of

logger = logging.getLogger(__name__)

_MONITORS_PORT = 9410
# Names that no name server of the Internet answers for: RFC 6762, RFC 8375, ICANN's .internal, and Kubernetes'.
_PRIVATE_NAMES = (".local", ".home.arpa", ".internal", ".localhost", ".svc")


class Metrics(Resource):  # type: ignore[misc]
    """/metrics of a registry, and nothing else.

    It changes nothing, but tells what is crawled. A web page that has its own name lead here (DNS rebinding) could
    read it, in the browser of somebody who can reach this server. So it answers to addresses, names that no such
    page can have.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self._registry = registry
        self.putChild(b"metrics", self)

    def render_GET(self, request: Any) -> bytes:  # noqa: N802 - Twisted's name
        """Return the metrics as they are now."""
        name = host_of((request.getHeader(b"host") or b"").decode("ascii", "replace"))
        if "." in name and not is_address(name) and not name.removesuffix(".").endswith(_PRIVATE_NAMES):
            request.setResponseCode(421)
            return b"unknown host name: scrape by address, by a name without a dot, or a private one (.internal)\n"
        request.setHeader(b"Content-Type", CONTENT_TYPE_LATEST.encode())
        return generate_latest(self._registry)


class MetricsService(Service):
    """/metrics of `scrapy monitor`."""

    def __init__(self, config_: config.Config, settings: BaseSettings) -> None:
        ours = config.read(MetricsSettings, settings)
        self._address, self._port = ours.address, ours.port or _MONITORS_PORT
        self._served: Any = None
        check_port(self._address, self._port, PORT)

    def start(self, reporter: Reporter) -> str:
        """Serve it."""
        metrics = Metrics(registry(CrawlCollector(reporter.latest_samples)))
        self._served = listen(metrics, self._address, self._port, PORT)
        return f"{url_of(self._address, self._port)}/metrics"

    async def stop(self) -> None:
        """Stop."""
        await close(self._served)


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
            await close(self._served)


def _latest_samples() -> dict[str, CrawlSample | None]:
    """Return the latest sample of each spider, which the crawler of the first shard takes."""
    found: dict[str, CrawlSample | None] = {}
    for crawler in _running:
        report = crawler.get_extension(StatusReport)
        latest = report.reporter.latest_samples() if report is not None else {}
        found |= {name: sample for name, sample in latest.items() if sample is not None}
    return found
