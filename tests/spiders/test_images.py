"""One response, or one failure, is one item."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import HtmlResponse, Response
from scrapy.settings import Settings
from scrapy.utils.test import get_crawler

from crawlproject.errors import (
    ConfigError,
)
from crawlproject.models import (
    AGAIN,
    FETCH_TIME,
    FREE_RETRIES,
    IDENTIFIER,
    OPT_OUT,
    RETRIES,
    SOURCE,
    Fetch,
    FetchedImage,
    LinkRotEvent,
    Seed,
)
from crawlproject.politeness.outcomes import Failure, of_status
from crawlproject.politeness.reasons import retry_after
from crawlproject.spiders.images import ImagesSpider

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
URL = "https://museum.org/a.jpg"
WHO = ("6f1c", URL, "museum")


@pytest.fixture
def spider() -> ImagesSpider:
    return ImagesSpider.from_crawler(get_crawler(ImagesSpider, {"DOWNLOAD_MAXSIZE": 1000}))


def request(url: str = URL, **meta: Any) -> Request:
    return Request(url, meta={IDENTIFIER: "6f1c", SOURCE: "museum", **meta})


def response(status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> Response:
    return Response(URL, status=status, body=body, headers=headers, request=request())


# Responses


@pytest.mark.parametrize(
    ("header", "content_type"),
    [
        ("image/jpeg", "image/jpeg"),
        ("Image/PNG; charset=binary", "image/png"),
        ("text/html ;x", "text/html"),
        ("", None),
        (";", None),
    ],
)
def test_200_is_a_body_to_look_at(spider: ImagesSpider, header: str, content_type: str | None) -> None:
    item = spider.parse(response(200, b"body", {"Content-Type": header}))
    assert isinstance(item, FetchedImage)
    assert (item.identifier, item.url, item.source) == WHO
    assert (item.body, item.content_type) == (b"body", content_type)
    assert abs((datetime.now(UTC) - datetime.fromisoformat(item.fetched_at)).total_seconds()) < 5


def test_a_page_of_html_is_looked_at_like_the_rest(spider: ImagesSpider) -> None:
    item = spider.parse(HtmlResponse(URL, body=b"<p>", request=request()))
    assert isinstance(item, FetchedImage)
    assert (item.body, item.content_type) == (b"<p>", None)


@pytest.mark.parametrize(("noted", "opt_out"), [({}, ()), ({OPT_OUT: ["noai", "noindex"]}, ("noai", "noindex"))])
def test_what_the_headers_declared_goes_with_the_picture(
    spider: ImagesSpider, noted: dict[str, Any], opt_out: tuple[str, ...]
) -> None:
    item = spider.parse(Response(URL, body=b"body", request=request(**noted)))
    assert isinstance(item, FetchedImage)
    assert item.opt_out == opt_out


@pytest.mark.parametrize("status", [404, 410])
def test_what_is_gone_is_link_rot(spider: ImagesSpider, status: int) -> None:
    item = spider.parse(response(status, b"not here"))
    assert isinstance(item, LinkRotEvent)
    assert (item.identifier, item.url, item.source) == WHO
    assert item.status == status
    assert datetime.fromisoformat(item.time).utcoffset() is not None


@pytest.mark.parametrize(
    ("status", "header", "wait"),
    [
        (204, "", None),
        (302, "", None),  # without a Location
        (403, "60", 60),
        (429, "", None),
        (429, "120", 120),
        (429, "soon", None),
        (500, "60", 60),
        (503, "", None),
        (503, "0", 0),
        (503, "60", 60),
        (503, "later", None),
        (999, "", None),
    ],
)
def test_other_statuses_are_failures(spider: ImagesSpider, status: int, header: str, wait: float | None) -> None:
    headers = {"Retry-After": header} if header else {}
    assert spider.parse(response(status, headers=headers)) == Failure(
        of_status(status, wait), f"status {status}", status=status, retry_after=wait
    )


def test_an_item_is_about_the_url_of_the_seed_and_not_about_where_it_led(spider: ImagesSpider) -> None:
    asked = request("https://cdn.org/1", redirect_urls=[URL, "https://cdn.org/0"])
    answer = Response("https://cdn.org/1", status=404, request=asked)
    assert spider.parse(answer).url == URL


def test_an_event_tells_how_its_answer_was_obtained(spider: ImagesSpider) -> None:
    hops = {"redirect_urls": [URL, "https://cdn.org/0"], "redirect_times": 2}
    asked = request("https://cdn.org/1", **hops, **{RETRIES: 1, FREE_RETRIES: 3, FETCH_TIME: 0.31678})
    item = spider.parse(Response("https://cdn.org/1", body=b"body", request=asked))
    assert isinstance(item, FetchedImage)
    assert item.fetch == Fetch(final_url="https://cdn.org/1", redirects=2, attempts=5, fetch_s=0.317)
    rot = spider.parse(Response("https://cdn.org/1", status=404, request=asked))
    assert isinstance(rot, LinkRotEvent)
    assert (rot.final_url, rot.redirects, rot.attempts, rot.fetch_s) == ("https://cdn.org/1", 2, 5, 0.317)


# Requests


@pytest.mark.parametrize(
    ("seed", "meta"),
    [
        (Seed(URL, "6f1c", None), {IDENTIFIER: "6f1c"}),
        (Seed(URL, "6f1c", "museum", again=True), {IDENTIFIER: "6f1c", SOURCE: "museum", AGAIN: True}),
    ],
)
def test_a_seed_becomes_a_request(spider: ImagesSpider, seed: Seed, meta: dict[str, Any]) -> None:
    made = spider.request_for(seed)
    assert (made.url, made.meta, made.priority) == (URL, meta, 0)
    assert spider.request_for(Seed(URL, "6f1c", None, priority=3)).priority == 3


async def test_the_spider_starts_with_nothing_of_its_own(spider: ImagesSpider) -> None:
    assert [one async for one in spider.start()] == []


def test_a_bad_setting_stops_the_start() -> None:
    with pytest.raises(ConfigError):
        ImagesSpider.update_settings(Settings({"CRAWL_MAX_RETRIES": "many"}))


# Retry-After


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (b"", None),
        (b"0", 0),
        (b"120", 120),
        (b" 120 ", 120),
        (b"99999999999999999999", 9_999_999_999),
        (b"1.5", None),
        (b"-5", None),
        (b"+5", None),
        (b"120 seconds", None),
        (b"\xb2", None),
        (b"soon", None),
        (b"Fri, 02 Jan 2026 03:05:05 GMT", 60),
        (b"Fri, 02 Jan 2026 03:05:05 -0000", 60),
        (b"Fri, 02 Jan 2026 04:05:05 +0100", 60),
        (b"Friday, 02-Jan-26 03:05:05 GMT", 60),
        (b"Fri Jan  2 03:05:05 2026", 60),
        (b"Fri, 02 Jan 2026 03:04:05 GMT", 0),
        (b"Thu, 01 Jan 1970 00:00:00 GMT", 0),
        (b"Fri, 32 Jan 2026 03:05:05 GMT", None),
        (b"Fri, 02 Jan 99999 03:05:05 GMT", None),
        (b"Fri, 02 Jan 2026 03:05:05 +99999999999999999999", None),
        (b"02 Jan 2026 99999999999999999999999:1:1 -0000", None),
        (b"\xff\xfe\x00", None),
        (b"," * 10_000, None),
    ],
)
def test_retry_after(value: bytes | None, seconds: float | None) -> None:
    assert retry_after(value, NOW) == seconds


@pytest.mark.parametrize(
    ("date", "asked"),
    [
        (b"Wed, 21 Oct 2015 07:28:00 GMT", 90.0),  # by the site's clock, however wrong one of us is
        (b"nonsense", None),
    ],
)
def test_a_date_to_come_back_at_is_by_the_clock_of_the_site(date: bytes, asked: float | None) -> None:
    spider = ImagesSpider()
    request = Request("http://museum.example/a.jpg", meta={IDENTIFIER: "a", SOURCE: "museum"})
    headers = {b"Date": date, b"Retry-After": b"Wed, 21 Oct 2015 07:29:30 GMT"}
    failure = spider.parse(Response(request.url, status=503, headers=headers, request=request))
    assert isinstance(failure, Failure)
    assert failure.retry_after == (asked if asked is not None else 0.0)


@pytest.mark.parametrize(
    ("headers", "codings"),
    [
        ([], ()),
        (["gzip"], ("gzip",)),
        (["GZIP , Br", "zstd"], ("gzip", "br", "zstd")),
        (["identity", "", " , "], ()),
        (["\xff"], ("ÿ",)),
    ],
)
def test_a_picture_tells_its_content_codings(
    spider: ImagesSpider, headers: list[str], codings: tuple[str, ...]
) -> None:
    request = Request(URL, meta={IDENTIFIER: "6f1c", SOURCE: "museum"})
    coded = Response(URL, headers={"Content-Encoding": [h.encode("latin-1") for h in headers]}, request=request)
    item = spider.parse(coded)
    assert isinstance(item, FetchedImage)
    assert item.codings == codings
