"""Seeds become requests, and one response, or one failure, is one item: the spiders images and pages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from crawlproject.frontier import codec
from crawlproject.frontier.discovery import Discovery, Link
from crawlproject.frontier.seeds import parse_seed
from crawlproject.models import (
    AGAIN,
    FETCH_TIME,
    FREE_RETRIES,
    IDENTIFIER,
    MOST_DEPTH,
    OPT_OUT,
    RETRIES,
    SCOPE,
    SITEMAP,
    SOURCE,
    VIA,
    Fetch,
    FetchedImage,
    LinkRotEvent,
    Seed,
)
from crawlproject.pages.items import FetchedPage, FetchedSitemap, ReadPage
from crawlproject.politeness.outcomes import KEPT_BACK, Failure, of_status
from crawlproject.spiders.images import ImagesSpider
from crawlproject.spiders.pages import PagesSpider

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
        ("Image/PNG; charset=binary", "image/png"),
        ("", None),
        (";", None),
    ],
)
def test_200_is_a_body_to_look_at(spider: ImagesSpider, header: str, content_type: str | None) -> None:
    item = spider.parse(response(200, b"body", {"Content-Type": header}))
    assert isinstance(item, FetchedImage)
    said = item.said
    assert (said["identifier"], said["url"], said["source"]) == WHO
    assert (item.body, said["content_type"]) == (b"body", content_type)
    assert abs((datetime.now(UTC) - datetime.fromisoformat(said["fetched_at"])).total_seconds()) < 5


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
        (302, "", None),  # without a Location
        (429, "120", 120),
        (503, "60", 60),
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
    how = Fetch(final_url="https://cdn.org/1", redirects=2, attempts=5, fetch_s=0.317)
    assert item.said.items() >= how._asdict().items()
    rot = spider.parse(Response("https://cdn.org/1", status=404, request=asked))
    assert isinstance(rot, LinkRotEvent)
    assert (rot.final_url, rot.redirects, rot.attempts, rot.fetch_s) == ("https://cdn.org/1", 2, 5, 0.317)


# Opt-outs


def spider_with(opt_outs: str) -> ImagesSpider:
    return ImagesSpider.from_crawler(get_crawler(ImagesSpider, {"CRAWL_OPT_OUTS": opt_outs}))


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"X-Robots-Tag": "noindex, noai"}, "noai (X-Robots-Tag), noindex (X-Robots-Tag)"),
        ({"TDM-Reservation": "1"}, "tdm-reservation (TDM-Reservation)"),
        ({"Content-Usage": "train-ai=n"}, "content-usage:train-ai (Content-Usage)"),
        ({"Content-Signal": "ai-train=no"}, "content-signal:ai-train (Content-Signal)"),
    ],
)
def test_by_default_every_opt_out_refuses_and_the_reason_names_it(
    spider: ImagesSpider, headers: dict[str, str], reason: str
) -> None:
    assert spider.parse(response(200, b"body", headers)) == Failure(KEPT_BACK, f"opt-out: {reason}", 200)


def test_one_forbidding_opt_out_is_enough_and_is_named() -> None:
    answer = response(200, b"body", {"X-Robots-Tag": "noindex, noai", "TDM-Reservation": "1"})
    assert spider_with("noai").parse(answer).reason == "opt-out: noai (X-Robots-Tag)"


@pytest.mark.parametrize(
    ("header", "noted", "opt_out"),
    [
        ("noai", {}, ("noai",)),
        ("noai", {OPT_OUT: ["noai", "noindex"]}, ("noai", "noindex")),  # of its robots.txt
        ("googlebot: noindex", {}, ()),
    ],
)
def test_what_does_not_forbid_to_keep_a_picture_goes_with_it(
    header: str, noted: dict[str, Any], opt_out: tuple[str, ...]
) -> None:
    answer = Response(URL, body=b"body", headers={"X-Robots-Tag": header}, request=request(**noted))
    assert spider_with("").parse(answer).said["opt_out"] == opt_out


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


@pytest.mark.parametrize(
    ("headers", "codings"),
    [
        ([], ()),
        (["GZIP , Br", "zstd"], ("gzip", "br", "zstd")),
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


PAGE = "https://museum.org/a"


@pytest.fixture
def pages() -> PagesSpider:
    return PagesSpider.from_crawler(get_crawler(PagesSpider))


@pytest.mark.parametrize(
    ("line", "url", "priority", "meta"),
    [
        (PAGE, PAGE, 3, {}),
        ("https://Museum.ORG", "https://museum.org/", 3, {}),
        ("https://museum.org/a?utm_source=x&b=1#part", "https://museum.org/a?b=1", 3, {}),
        ('{"url": "https://museum.org/a", "priority": 0}', PAGE, 0, {}),
        (f'{{"url": "{PAGE}", "depth": 0, "source": "Museum"}}', PAGE, 3, {MOST_DEPTH: 0, SOURCE: "museum"}),
        ('{"url": "https://museum.org/a", "again": true}', PAGE, 3, {AGAIN: True}),
        (f'{{"url": "{PAGE}", "scope": "host"}}', PAGE, 3, {SCOPE: "host:museum.org"}),
    ],
)  # fmt: skip
def test_the_request_of_a_seed(
    pages: PagesSpider, line: str, url: str, priority: int, meta: dict[str, Any]
) -> None:
    request = pages.request_for(parse_seed(line))
    meta = meta | {VIA: request.meta[VIA]}  # the time
    assert (request.url, request.priority, request.meta) == (url, priority, meta)
    stored = codec.decode(codec.encode(request, pages), pages)
    assert (stored.url, stored.priority, stored.meta) == (url, priority, meta)


def test_every_response_is_one_item(pages: PagesSpider) -> None:
    def item(status: int, **meta: Any) -> Any:
        request = Request(PAGE, meta={SOURCE: "museum", **meta})
        return pages.parse(Response(PAGE, status=status, request=request))

    page = item(200, depth=4, redirect_urls=["https://museum.org/first"], **{SCOPE: "x.org/*", MOST_DEPTH: 9})
    assert isinstance(page, FetchedPage)
    assert (page.url, page.fetch.final_url, page.fetch.redirects) == ("https://museum.org/first", PAGE, 1)
    assert (page.source, page.depth, page.scope, page.most_depth) == ("museum", 4, "x.org/*", 9)
    gone, failed = item(404), item(503)
    assert isinstance(gone, LinkRotEvent)
    assert (gone.identifier, gone.url) == ("1ed3d01f-9513-58b4-a151-5ef72ea0b562", PAGE)
    assert isinstance(failed, Failure)
    assert failed.reason == "status 503"


def test_a_sitemap_comes_back_with_what_it_may_lead_to(pages: PagesSpider) -> None:
    links = Discovery(None, pages.config)  # type: ignore[arg-type]
    meta = {SCOPE: "host:museum.org", SITEMAP: 1}
    request = codec.decode(links.stored(Link(PAGE, 2, 1, source="museum", meta=meta)), pages)
    item = pages.parse(Response(PAGE, request=request))
    assert isinstance(item, FetchedSitemap)
    assert (item.url, item.depth, item.indexes) == (PAGE, 1, 1)
    assert (item.scope, item.most_depth) == ("host:museum.org", None)
    assert pages.parse(Response(PAGE, status=404, request=request)) == ReadPage(None, 404)
