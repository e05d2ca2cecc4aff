"""Asks for pages that are looked at again on the condition that they have changed."""

from __future__ import annotations

from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler

from crawlproject import config
from crawlproject.models import REVISIT
from crawlproject.pages.revisits import Look
from crawlproject.politeness.conditions import CONDITIONS


class RevisitMiddleware:
    """Sends what the address that answered the last time has called its version, to that address alone.

    A page that is not in the content store yet is asked for without a condition.
    """

    def __init__(self, settings: config.Config) -> None:
        self.keeps_pages = settings.pages_store is not None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the middleware of `crawler`."""
        return cls(config.load(crawler.settings))

    def process_request(self, request: Request) -> None:
        """Set the conditions; a request that was redirected may have those of where it came from."""
        for name in CONDITIONS:
            request.headers.pop(name, None)
        if REVISIT in request.meta:
            look = Look(*request.meta[REVISIT])
            if look.url == request.url and (look.kept_at or not self.keeps_pages):
                request.headers.update(look.conditions)
