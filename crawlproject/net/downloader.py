"""Scrapy's downloader, without its queues: in them the send slot of a request would pass."""

from __future__ import annotations

import asyncio
from typing import Any

from scrapy import Request, signals
from scrapy.core.downloader.handlers import DownloadHandlers
from scrapy.core.downloader.middleware import DownloaderMiddlewareManager
from scrapy.crawler import Crawler
from scrapy.exceptions import _InvalidOutput
from scrapy.http import Response
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.python import global_object_name
from twisted.internet.defer import Deferred

from crawlproject.net.handler import CrawlDownloadHandler


class Downloader:
    """Takes requests through the downloader middlewares to the handler of their scheme, at once.

    It is what the engine knows of Scrapy's own, with its signals, but without slots: a delay for a host is refused
    (`config.check_guarded`), and a bound for it has no effect.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.active: set[Request] = set()
        self.handlers = DownloadHandlers(crawler)
        self.middleware = Middlewares.from_crawler(crawler)
        self.total_concurrency = crawler.settings.getint("CONCURRENT_REQUESTS")

    def needs_backout(self) -> bool:
        """Tell whether no more requests can be in flight."""
        return 0 < self.total_concurrency <= len(self.active)

    def fetch(self, request: Request) -> Deferred[Response | Request]:
        """Return the response of a request, or what a middleware has put in its place."""
        self.active.add(request)
        fetched = asyncio.create_task(self.middleware.download_async(self._download, request))

        def done(result: Any) -> Any:
            self.active.remove(request)  # not before the engine has the result: it would close an idle spider
            return result

        return Deferred.fromFuture(fetched).addBoth(done)

    async def _download(self, request: Request) -> Response:
        send, told = self.crawler.signals.send_catch_log, {"request": request, "spider": self.crawler.spider}
        send(signals.request_reached_downloader, **told)
        try:
            handler: Any = self.handlers._get_handler(request.url.partition(":")[0])
            is_ours = isinstance(handler, CrawlDownloadHandler)
            download = handler.download_request if is_ours else self.handlers.download_request_async
            response: Response = await download(request)
            send(signals.response_downloaded, response=response, **told)
            return response
        finally:
            send(signals.request_left_downloader, **told)

    def close(self) -> None:
        """Do nothing: the handlers close with the engine."""


class Middlewares(DownloaderMiddlewareManager):
    """Scrapy's chain of downloader middlewares, which waits only for the methods that have it wait."""

    async def _process_request(self, request: Request, download_func: Any) -> Response | Request:
        for method in self.methods["process_request"]:
            assert method is not None
            found = self._handle_mw_method(method, request=request)
            if found is not None and not isinstance(found, (Request, Response)):
                found = await ensure_awaitable(found, global_object_name(method))
            if isinstance(found, (Request, Response)):
                return found
            if found is not None:
                raise _InvalidOutput(f"{method.__qualname__} must return None, Response or Request: {found!r:.80}")
        response: Response = await download_func(request)
        return response

    async def _process_response(self, response: Response | Request, request: Request) -> Response | Request:
        for method in self.methods["process_response"]:
            assert method is not None
            if isinstance(response, Request):
                break
            found = self._handle_mw_method(method, request=request, response=response)
            if not isinstance(found, (Request, Response)):
                found = await ensure_awaitable(found, global_object_name(method))
            if not isinstance(found, (Request, Response)):
                raise _InvalidOutput(f"{method.__qualname__} must return Response or Request: {found!r:.80}")
            response = found
        return response
