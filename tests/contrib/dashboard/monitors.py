"""A `scrapy monitor` with its dashboard."""

from __future__ import annotations

from tests import monitors


class Monitor(monitors.Monitor):
    @property
    def port(self) -> int:
        return int(self.environ["CRAWL_DASHBOARD_PORT"])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"
