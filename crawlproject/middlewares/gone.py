"""Knows by which statuses the source of a picture says that it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response

from crawlproject.errors import Stopped
from crawlproject.frontier.worker import worker_of
from crawlproject.models import GONE, GONE_STATUSES, IDENTIFIER, LEASE
from crawlproject.state import source_table
from crawlproject.state.client import REDIS_TROUBLE

_LASTS_S = 60.0  # that what the catalogue says of a source is taken for known
_MOST = 10_000  # sources of which it is


class GoneMiddleware:
    """Notes with a request what its source's row of the catalogue calls link rot, if it matters for the answer."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self._known: dict[str, tuple[float, Collection[int]]] = {}

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the middleware of `crawler`."""
        return cls(crawler)

    async def process_response(self, request: Request, response: Response) -> Response:
        """Return the response.

        Raises:
            Stopped: Redis cannot say it: the request goes back, as if it had never been sent.

        """
        if response.status in GONE_STATUSES and IDENTIFIER in request.meta and LEASE in request.meta:
            request.meta[GONE] = await self._gone_at(request.meta[LEASE].source)
        return response

    async def _gone_at(self, source: str) -> Collection[int]:
        now = asyncio.get_running_loop().time()
        until, gone = self._known.get(source, (0.0, ()))
        if now < until:
            return gone
        state = worker_of(self.crawler).state
        try:
            gone = await source_table.gone_statuses(state, source)
        except REDIS_TROUBLE as error:
            state.failed(error)
            raise Stopped(f"Redis does not tell what is link rot at {source}") from error
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[source] = now + _LASTS_S, gone
        return gone
