"""Says in every request who we are."""

from __future__ import annotations

from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares import useragent

from crawlproject import config


class UserAgentMiddleware(useragent.UserAgentMiddleware):
    """Scrapy's middleware with our User-Agent, which names CRAWL_CONTACT; no spider goes out under another."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the middleware of `crawler`."""
        return cls(config.load(crawler.settings).user_agent)

    def process_request(self, request: Request) -> None:  # type: ignore[override]  # without the deprecated spider
        """Name us, in place of whatever the request, the spider or its settings say."""
        request.headers[b"User-Agent"] = self.user_agent
