"""Which opt-outs refuse a picture, and which are only recorded."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from crawlproject import config
from crawlproject.errors import OptedOut
from crawlproject.middlewares.optout import OptOutMiddleware
from crawlproject.models import IDENTIFIER, OPT_OUT, SOURCE
from crawlproject.spiders.images import ImagesSpider

URL = "https://museum.org/a.jpg"


def middleware(**settings: Any) -> OptOutMiddleware:
    return OptOutMiddleware(config.load(settings))


def request(**meta: Any) -> Request:
    return Request(URL, meta={IDENTIFIER: "6f1c", SOURCE: "museum", **meta})


def response(headers: dict[str, str], status: int = 200) -> Response:
    return Response(URL, status=status, headers=headers)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"X-Robots-Tag": "noai"}, "noai (X-Robots-Tag)"),
        ({"X-Robots-Tag": "noindex, noai"}, "noai (X-Robots-Tag), noindex (X-Robots-Tag)"),
        ({"TDM-Reservation": "1"}, "tdm-reservation (TDM-Reservation)"),
        ({"Content-Usage": "train-ai=n"}, "content-usage:train-ai (Content-Usage)"),
        ({"Content-Signal": "ai-train=no"}, "content-signal:ai-train (Content-Signal)"),
    ],
)
def test_by_default_every_opt_out_refuses_and_the_error_names_it(headers: dict[str, str], reason: str) -> None:
    sent = request()
    with pytest.raises(OptedOut) as caught:
        middleware().process_response(sent, response(headers))
    assert str(caught.value) == reason
    assert OPT_OUT not in sent.meta


def test_an_opt_out_that_the_setting_does_not_name_is_noted_with_the_request() -> None:
    sent, answer = request(), response({"X-Robots-Tag": "noindex, noai", "TDM-Reservation": "1"})
    assert middleware(CRAWL_OPT_OUTS="noimageai").process_response(sent, answer) is answer
    assert sent.meta[OPT_OUT] == ["noai", "noindex", "tdm-reservation"]


def test_one_forbidding_opt_out_is_enough_and_is_named() -> None:
    answer = response({"X-Robots-Tag": "noindex, noai", "TDM-Reservation": "1"})
    with pytest.raises(OptedOut, match=r"^noai \(X-Robots-Tag\)$"):
        middleware(CRAWL_OPT_OUTS="noai").process_response(request(), answer)


def test_an_empty_setting_refuses_nothing() -> None:
    sent, answer = request(), response({"X-Robots-Tag": "noai"})
    assert middleware(CRAWL_OPT_OUTS="").process_response(sent, answer) is answer
    assert sent.meta[OPT_OUT] == ["noai"]


def test_a_response_without_opt_outs_leaves_no_note() -> None:
    sent, answer = request(), response({"X-Robots-Tag": "googlebot: noindex", "Content-Usage": "train-ai=y"})
    assert middleware().process_response(sent, answer) is answer
    assert OPT_OUT not in sent.meta


@pytest.mark.parametrize("status", [301, 403, 404, 410, 429, 500])
def test_other_statuses_pass_as_there_is_no_picture_to_keep(status: int) -> None:
    sent, answer = request(), response({"X-Robots-Tag": "noai"}, status)
    assert middleware().process_response(sent, answer) is answer
    assert OPT_OUT not in sent.meta


@pytest.mark.parametrize("status", [206, 304])
def test_a_probe_keeps_no_more_than_a_fetch(status: int) -> None:
    with pytest.raises(OptedOut) as caught:
        middleware().process_response(request(), response({"X-Robots-Tag": "noai"}, status))
    assert caught.value.status == status


def test_other_responses_may_declare_noindex_for_themselves() -> None:
    answer = response({"X-Robots-Tag": "noindex"})
    assert middleware().process_response(Request("https://museum.org/robots.txt"), answer) is answer


def test_a_crawl_uses_its_settings() -> None:
    crawler = get_crawler(ImagesSpider, {"CRAWL_OPT_OUTS": "noai,tdm-reservation"})
    assert OptOutMiddleware.from_crawler(crawler).forbidding == {"noai", "tdm-reservation"}
