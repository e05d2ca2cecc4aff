"""What every request passes on its way to the downloader."""

from __future__ import annotations

from typing import Self

from scrapy.crawler import Crawler


class Middleware:
    """A middleware of `crawler`."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the middleware of `crawler`."""
        return cls(crawler)
