"""Reads a page: undoes its content codings, and finds what it says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Self

from scrapy.crawler import Crawler

from crawlproject import config
from crawlproject.imaging.codings import content_codings, decoded_beginning
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.models import Failure, FetchedPage
from crawlproject.pages.page import read_page
from crawlproject.politeness.outcomes import NOT_HTML, UNREADABLE, Outcome


class PagePipeline:
    """Reads the beginning of a `FetchedPage`, `CRAWL_PAGES_MAX_BYTES` of it, whatever it would decode to."""

    def __init__(self, settings: config.Config) -> None:
        self.settings = settings

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the pipeline with the bounds of the settings."""
        return cls(config.load(crawler.settings))

    def process_item(self, item: Any) -> Any:
        """Return a `FetchedPage` with what was read in it, or a failure; other items as they are."""
        if not isinstance(item, FetchedPage):
            return item
        response, most = item.response, self.settings.pages_max_bytes
        codings = content_codings(response.headers.getlist("Content-Encoding"))
        try:
            item.body = decoded_beginning(response.body, codings, most)
        except UnreadableImage as error:
            return _failure(item, UNREADABLE, str(error))
        item.page = read_page(response.url, response.headers, item.body, datetime.now(UTC), max_bytes=most)
        return item if item.page is not None else _failure(item, NOT_HTML, "not HTML")


def _failure(item: FetchedPage, outcome: Outcome, reason: str) -> Failure:
    return Failure("", item.url, item.source, outcome, reason, status=item.response.status)
