"""Starts and ends the dashboard, in `scrapy monitor`."""

from __future__ import annotations

from contextlib import AsyncExitStack
from ipaddress import ip_address

from scrapy.settings import BaseSettings

from crawlproject import config
from crawlproject.contrib.dashboard.plugin import DashboardSettings
from crawlproject.errors import ConfigError
from crawlproject.status.reporter import Reporter
from crawlproject.status.service import Service
from crawlproject.storage.blobs import reader_of
from crawlproject.webserver import check_port, close, listen, url_of

_PORT = "CRAWL_DASHBOARD_PORT"


class DashboardService(Service):
    """Serves the dashboard, unless its port is 0."""

    def __init__(self, config_: config.Config, settings: BaseSettings) -> None:
        self._settings = config.read(DashboardSettings, settings)
        self._parts = AsyncExitStack()
        address, port = self._settings.address, self._settings.port
        if not port:
            return
        if not ip_address(address).is_loopback and self._settings.password is None:
            raise ConfigError(
                f"CRAWL_DASHBOARD_ADDRESS={address} would let everyone who reaches it control the crawl: "
                "set CRAWL_DASHBOARD_PASSWORD, or leave CRAWL_DASHBOARD_ADDRESS at 127.0.0.1"
            )
        check_port(address, port, _PORT)
        self._thumbnail = reader_of(config_.images_store, settings)

    def start(self, reporter: Reporter) -> str | None:
        """Serve it."""
        from crawlproject.contrib.dashboard.site import Dashboard

        address, port = self._settings.address, self._settings.port
        if not port:
            return None
        dashboard = Dashboard(self._settings, reporter, self._thumbnail)
        dashboard.start()
        self._parts.push_async_callback(dashboard.stop)
        self._parts.push_async_callback(close, listen(dashboard, address, port, _PORT))
        return url_of(address, port)

    async def stop(self) -> None:
        """Close all connections."""
        await self._parts.aclose()
