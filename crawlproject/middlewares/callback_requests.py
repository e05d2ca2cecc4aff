"""Requests that a spider's callbacks yield."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware

from crawlproject.frontier.codec import detached, is_header_stored, is_stored, named_source
from crawlproject.frontier.scheduler import scheduler_of
from crawlproject.models import LEASE, LED_BY, SOURCE, Lease
from crawlproject.sources.domains import domain_of_url

logger = logging.getLogger(__name__)


class CallbackRequestsMiddleware(BaseSpiderMiddleware):
    """Makes the requests that were found in a response independent of the one that led there.

    Within the registrable domain of the response they belong to its source, unless a redirect has led there from
    another; another domain pays for itself. Meta and headers that will not be stored are named in the log, once.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._named: set[str] = set()

    def get_processed_request(self, request: Request, response: Response | None) -> Request:
        """Return a request to be crawled by itself; start requests are so already."""
        if response is None:
            return request
        assert response.request is not None
        own = detached(request)
        source = named_source(response.request)
        if source is not None and domain_of_url(own.url) == domain_of_url(response.url):
            own.meta[SOURCE] = source
        elif own.meta.get(SOURCE) == response.meta.get(SOURCE):
            own.meta.pop(SOURCE, None)
        for what, where in self._lost(own):
            if what not in self._named:
                self._named.add(what)
                spider = scheduler_of(self.crawler).spider.name
                logger.warning(
                    "%s of a request is not stored, and so is lost: name it in %s of the spider %s",
                    what,
                    where,
                    spider,
                )
        lease: Lease | None = response.request.meta.get(LEASE)
        if lease is not None and lease.reached_spider:
            own.meta[LED_BY] = lease  # which ends when this is stored
        return own

    def _lost(self, request: Request) -> Iterator[tuple[str, str]]:
        """Yield what will not be stored, and where the spider would declare it."""
        spider = scheduler_of(self.crawler).spider
        for name in request.meta:
            if not is_stored(name, spider):
                yield f"meta[{name!r}]", "stored_meta"
        for header in request.headers:
            if not is_header_stored(header, spider):
                yield f"the header {header.decode('latin-1')}", "stored_headers"
