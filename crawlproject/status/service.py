"""What `scrapy monitor` runs beside its reports: the interface of plug-ins, such as the dashboard."""

from __future__ import annotations

from abc import ABC, abstractmethod

from scrapy.settings import BaseSettings

from crawlproject.config import Config
from crawlproject.status.reporter import Reporter


class Service(ABC):
    """Something that shows, or sends on, what a reporter has read."""

    @abstractmethod
    def __init__(self, config: Config, settings: BaseSettings) -> None:
        """Check the settings, before anything is started.

        Raises:
            ConfigError: one is wrong.

        """

    @abstractmethod
    def start(self, reporter: Reporter) -> str | None:
        """Begin, in the reactor's loop; return the URL where it serves, None if nowhere."""

    @abstractmethod
    async def stop(self) -> None:
        """End."""
