"""Content codings: those of pictures, of crawled pages and of robots.txt are undone elsewhere, within bounds."""

from __future__ import annotations

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.httpcompression import HttpCompressionMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from crawlproject.imaging.codings import decoded
from crawlproject.imaging.failures import TooLargeImage, UnreadableImage
from crawlproject.models import IDENTIFIER, LEASE, SLOT


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
