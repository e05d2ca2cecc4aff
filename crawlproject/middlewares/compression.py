"""Content codings: of pictures, a decoder process undoes them."""

from __future__ import annotations

from scrapy import Request
from scrapy.downloadermiddlewares.httpcompression import HttpCompressionMiddleware
from scrapy.http import Response

from crawlproject.models import IDENTIFIER


class CompressionMiddleware(HttpCompressionMiddleware):
    """Scrapy's, in its place, for what is no picture, such as a robots.txt.

    A picture's body, up to `DOWNLOAD_MAXSIZE` of it, would hold up the reactor: see `imaging/codings.py`.
    """

    def process_response(  # type: ignore[override]  # without the deprecated spider
        self, request: Request, response: Response
    ) -> Request | Response:
        """Return the response, decoded unless it is a picture."""
        return response if IDENTIFIER in request.meta else super().process_response(request, response)
