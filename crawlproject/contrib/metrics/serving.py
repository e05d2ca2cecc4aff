"""Serves /metrics: of the whole crawl in `scrapy monitor`; worker.py has those of a worker."""

from __future__ import annotations

from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from scrapy.settings import BaseSettings

from crawlproject import config
from crawlproject.contrib.metrics.collectors import CrawlCollector, registry
from crawlproject.contrib.metrics.plugin import PORT, MetricsSettings
from crawlproject.status.reporter import Reporter
from crawlproject.status.service import Service
from crawlproject.webserver import Resource, check_port, close, host_of, is_address, listen, url_of

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
