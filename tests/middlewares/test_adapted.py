"""Where a content coding is undone, and who we say we are."""

from __future__ import annotations

import gzip
import zlib

import pytest
from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from crawlproject import __version__
from crawlproject.middlewares.adapted import CompressionMiddleware, UserAgentMiddleware
from crawlproject.models import IDENTIFIER, LEASE, SLOT
from crawlproject.spiders.pages import PagesSpider

URL = "https://museum.org/a"
BODY = gzip.compress(b"Disallow:", mtime=0)


def received(body: bytes = BODY, coding: str = "gzip", meta: dict[str, str | None] | None = None) -> Response:
    middleware = CompressionMiddleware.from_crawler(get_crawler(settings_dict={"DOWNLOAD_MAXSIZE": 1000}))
    response = Response(URL, headers={"Content-Encoding": coding}, body=body)
    made = middleware.process_response(Request(URL, meta=meta), response)
    assert isinstance(made, Response)
    return made


@pytest.mark.parametrize("meta", [{IDENTIFIER: "6f1c"}, {SLOT: None}], ids=["a picture", "a robots.txt"])
def test_what_comes_from_strangers_is_passed_on_as_it_came(meta: dict[str, str | None]) -> None:
    made = received(meta=meta)
    assert (made.body, made.headers["Content-Encoding"]) == (BODY, b"gzip")


def test_a_page_is_passed_on_as_it_came_but_not_in_the_shell() -> None:
    middleware = CompressionMiddleware.from_crawler(get_crawler(PagesSpider))
    response = Response(URL, headers={"Content-Encoding": "gzip"}, body=BODY)
    leased = middleware.process_response(Request(URL, meta={LEASE: object()}), response)
    assert isinstance(leased, Response)
    assert leased.body == BODY
    shown = middleware.process_response(Request(URL), response)
    assert isinstance(shown, Response)
    assert shown.body == b"Disallow:"


def test_everything_else_is_decoded() -> None:
    made = received()
    assert (made.body, "Content-Encoding" in made.headers) == (b"Disallow:", False)
    made = received(zlib.compress(BODY), "own, gzip, deflate")
    assert (made.body, made.headers["Content-Encoding"]) == (b"Disallow:", b"own")


@pytest.mark.parametrize(
    ("body", "coding", "why"),
    [
        (gzip.compress(bytes(1001), mtime=0), "gzip", "larger than DOWNLOAD_MAXSIZE"),
        (BODY, "gzip, gzip, gzip", "3 nested content codings"),
        (b"no such coding", "gzip", "content coding gzip"),
    ],
)
def test_what_cannot_be_decoded_within_bounds_is_dropped(body: bytes, coding: str, why: str) -> None:
    with pytest.raises(IgnoreRequest, match=why):
        received(body, coding)


def test_the_user_agent_says_who_we_are_whatever_the_spider_says() -> None:
    crawler = get_crawler(settings_dict={"CRAWL_CONTACT": "mailto:bot@example.org", "USER_AGENT": "Mozilla/5.0"})
    request = Request("https://museum.org/", headers={"User-Agent": "Mozilla/5.0"})
    UserAgentMiddleware.from_crawler(crawler).process_request(request)
    said = f"crawlproject/{__version__} (+mailto:bot@example.org)"
    assert request.headers["User-Agent"] == said.encode()
