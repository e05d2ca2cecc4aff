"""Content codings: those of pictures are left to the decoder process."""

from __future__ import annotations

from scrapy import Request
from scrapy.downloadermiddlewares.httpcompression import HttpCompressionMiddleware
from scrapy.http import Response

from crawlproject.models import IDENTIFIER


class CompressionMiddleware(HttpCompressionMiddleware):
    """Scrapy's middleware for everything but pictures, such as a robots.txt.

    Decompressing a picture, of up to `DOWNLOAD_MAXSIZE`, would block the reactor: see `imaging/codings.py`.
    """

    def process_response(  # type: ignore[override]  # without the deprecated spider
        self, request: Request, response: Response
    ) -> Request | Response:
        """Return the response, decoded unless it is a picture."""
        return response if IDENTIFIER in request.meta else super().process_response(request, response)
