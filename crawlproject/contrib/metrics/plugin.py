"""What the crawl does, for Prometheus: /metrics of `scrapy monitor`, and of each worker that has a port."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scrapy.settings import BaseSettings

from crawlproject import config
from crawlproject.config.parsers import address, whole
from crawlproject.plugins import Plugin

PORT = "CRAWL_METRICS_PORT"


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricsSettings:
    """Where it is served."""

    PREFIX: ClassVar[str] = "CRAWL_METRICS_"

    port: int | None = config.setting(
        None,
        whole(1, 65535),
        "port of `/metrics`, different for each process; none: 9410 for `crawlproject monitor`, off for workers",
        unit="port",
    )
    address: str = config.setting("127.0.0.1", address, "address that `/metrics` is bound to")


def check_worker(settings: BaseSettings) -> None:
    """Make sure that the port of a worker is available, before anything starts.

    Raises:
        ConfigError: it is not.

    """
    ours = config.read(MetricsSettings, settings)
    if ours.port is not None:
        from crawlproject.webserver import check_port  # here: Twisted would slow every command

        check_port(ours.address, ours.port, PORT)


PLUGIN = Plugin(
    settings=MetricsSettings,
    services={"metrics": "crawlproject.contrib.metrics.serving.MetricsService"},
    checks={"metrics": "crawlproject.contrib.metrics.plugin.check_worker"},
    scrapy={"EXTENSIONS_BASE": {"crawlproject.contrib.metrics.worker.WorkerMetrics": 310}},
)
