"""Requests that a spider's callbacks yield: each is new, whatever meta it was given."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any, Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response

from crawlproject.frontier.codec import is_stored, named_source
from crawlproject.models import (
    AGAIN,
    FREE_RETRIES,
    IDENTIFIER,
    LEASE,
    OPT_OUT,
    PACED_AS,
    PASSAGE,
    RETRIES,
    SLOT,
    SOURCE,
)
from crawlproject.sources.domains import domain_of_url
from crawlproject.worker import worker_of

# What belongs to the request that a response came of. `Request(url, meta=response.meta)` would take it along.
_OF_ONE_REQUEST = (LEASE, PACED_AS, PASSAGE, SLOT, RETRIES, FREE_RETRIES, AGAIN, IDENTIFIER, OPT_OUT)
_OF_ONE_DOWNLOAD = ("redirect_", "download_")


logger = logging.getLogger(__name__)


class FoundRequestsMiddleware:
    """Makes the requests that were found in a response independent of the one that led there.

    Within the registrable domain of the response they belong to its source, unless a redirect has led there from
    another; another domain pays for itself. Meta that will not be stored is named in the log, once.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self._named: set[str] = set()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the middleware of `crawler`."""
        return cls(crawler)

    async def process_spider_output(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield what the callback yields."""
        async for one in result:
            if isinstance(one, Request):
                self._detach(one, response)
            yield one

    def _detach(self, request: Request, response: Response) -> None:
        meta = request.meta
        for name in [name for name in meta if name in _OF_ONE_REQUEST or name.startswith(_OF_ONE_DOWNLOAD)]:
            del meta[name]
        spider = worker_of(self.crawler).spider
        for name in meta:
            if name not in self._named and not is_stored(name, spider):
                self._named.add(name)
                logger.warning(
                    "meta[%r] of a request is not stored, and so is lost: name it in stored_meta of the spider %s",
                    name,
                    spider.name,
                )
        assert response.request is not None
        source = named_source(response.request)
        if source is not None and domain_of_url(request.url) == domain_of_url(response.url):
            meta[SOURCE] = source
        elif meta.get(SOURCE) == response.meta.get(SOURCE):
            meta.pop(SOURCE, None)
