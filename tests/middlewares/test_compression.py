"""Where a content coding is undone."""

from __future__ import annotations

import gzip

from scrapy import Request
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from crawlproject.middlewares.compression import CompressionMiddleware
from crawlproject.models import IDENTIFIER

URL = "https://museum.org/a"
BODY = gzip.compress(b"Disallow:")


def received(**meta: str) -> Response:
    middleware = CompressionMiddleware.from_crawler(get_crawler(settings_dict={"DOWNLOAD_MAXSIZE": 1000}))
    response = Response(URL, headers={"Content-Encoding": "gzip"}, body=BODY)
    made = middleware.process_response(Request(URL, meta=meta), response)
    assert isinstance(made, Response)
    return made


def test_a_picture_reaches_the_spider_as_it_came() -> None:
    made = received(**{IDENTIFIER: "6f1c"})
    assert (made.body, made.headers["Content-Encoding"]) == (BODY, b"gzip")


def test_everything_else_is_decoded_as_usual() -> None:
    made = received()
    assert (made.body, "Content-Encoding" in made.headers) == (b"Disallow:", False)
