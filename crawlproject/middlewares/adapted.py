"""Scrapy's own middlewares, changed where they would do what this crawler must not."""

from __future__ import annotations

from typing import Any, Self

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares import offsite, stats, useragent
from scrapy.downloadermiddlewares.httpcompression import HttpCompressionMiddleware
from scrapy.downloadermiddlewares.redirect import RedirectMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from crawlproject import config
from crawlproject.errors import AddressRefused
from crawlproject.imaging.codings import decoded
from crawlproject.imaging.failures import TooLargeImage, UnreadableImage
from crawlproject.models import IDENTIFIER, LEASE, SLOT
from crawlproject.sources.domains import url_fault, with_canonical_host
from crawlproject.texts import LONGEST_URL


class OffsiteMiddleware(offsite.OffsiteMiddleware):
    """Scrapy's middleware, but redirects that lead away are refused by `CheckedRedirectMiddleware`.

    Scrapy drops them before the scheduler sees them, which could not tell that from a fault.
    """

    def request_scheduled(self, request: Request, spider: Spider) -> None:
        """Refuse a new request that leads away.

        Raises:
            IgnoreRequest: it does.

        """
        if LEASE not in request.meta:
            super().request_scheduled(request, spider)


class UserAgentMiddleware(useragent.UserAgentMiddleware):
    """Scrapy's middleware with our User-Agent, which names CRAWL_CONTACT; no spider goes out under another."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the middleware of `crawler`."""
        return cls(config.load(crawler.settings).user_agent)

    def process_request(self, request: Request) -> None:  # type: ignore[override]  # without the deprecated spider
        """Name us, in place of whatever the request, the spider or its settings say."""
        request.headers[b"User-Agent"] = self.user_agent


class StatsMiddleware(stats.DownloaderStats):
    """Scrapy's middleware, which would write each request a second time to learn its size."""

    def process_request(self, request: Request) -> None:  # type: ignore[override]  # without the deprecated spider
        """Count a request."""
        count = self.stats.inc_value
        count("downloader/request_count")
        count(f"downloader/request_method_count/{request.method}")
        line = len(f"{request.method} {request.url} HTTP/1.1\r\nHost: \r\n\r\n") - len("http://")
        count("downloader/request_bytes", line + stats.get_header_size(dict(request.headers)) + len(request.body))


class CompressionMiddleware(HttpCompressionMiddleware):
    """Scrapy's middleware for others' spiders, and for `scrapy shell` and `fetch`.

    Decompressing what comes from strangers would block the reactor. A picture is decoded by its decoder process,
    a robots.txt in a thread (`robots/fetcher.py`), and of a page only the beginning (`pipelines/page.py`); all by
    `imaging/codings.py`.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler=crawler)
        self._has_pages = getattr(crawler.spidercls, "one_item_each", False)

    def process_response(  # type: ignore[override]  # without the deprecated spider
        self, request: Request, response: Response
    ) -> Request | Response:
        """Return the response, decoded unless it is a picture, a page of the spider `pages`, or a robots.txt."""
        undone_elsewhere = IDENTIFIER in request.meta or SLOT in request.meta
        undone_elsewhere |= self._has_pages and LEASE in request.meta
        return response if undone_elsewhere else super().process_response(request, response)

    def _handle_encoding(
        self, body: bytes, content_encoding: list[bytes], max_size: int
    ) -> tuple[bytes, list[bytes]]:
        """Return the decoded body and the codings that are left; Scrapy's own takes quadratic time."""
        to_decode, to_keep = self._split_encodings(content_encoding)
        codings = [coding.decode() for coding in reversed(to_decode)]
        try:
            return decoded(body, codings, max_size), to_keep
        except (TooLargeImage, UnreadableImage) as error:
            raise IgnoreRequest(str(error)) from error


class CheckedRedirectMiddleware(RedirectMiddleware):
    """Scrapy's redirects, except to a URL that would not be accepted as a seed.

    A Location with a user name or password is refused before it is logged, stored, or sent on as a Referer; one
    beyond the spider's `allowed_domains` before it takes a slot there.
    """

    def process_response(self, request: Request, response: Response) -> Request | Response:  # type: ignore[override]
        """Return the response, or the request that it redirects to.

        Raises:
            AddressRefused: the URL redirected to is not accepted.
            IgnoreRequest: the spider does not want it.

        """
        try:
            return super().process_response(request, response)
        except ValueError:
            raise AddressRefused("redirect to an invalid URL") from None

    def _redirect(self, redirected: Request, request: Request, reason: Any) -> Request:
        if len(redirected.url) > LONGEST_URL:
            raise AddressRefused(f"redirect to a URL of {len(redirected.url)} characters, more than {LONGEST_URL}")
        redirected = redirected.replace(url=with_canonical_host(redirected.url))
        if fault := url_fault(redirected.url):
            raise AddressRefused(f"bad redirect: {fault}")
        if (offsite := self.crawler.get_downloader_middleware(OffsiteMiddleware)) is not None:
            offsite.process_request(redirected)
        return super()._redirect(redirected, request, reason)
