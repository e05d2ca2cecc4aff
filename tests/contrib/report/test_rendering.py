"""The page of a report: what it tells the admin of a site is what the crawl does."""

from __future__ import annotations

import json
import re
import time
from html import unescape
from typing import Any

import msgpack
import pytest

from crawlproject.contrib.report.charts import kind_of
from crawlproject.contrib.report.rendering import page
from crawlproject.contrib.report.site_report import site_report
from crawlproject.state.client import State
from tests.leading import lead

HOUR = 3600


async def report_of(state: State, *hours: list[Any], gone: tuple[int, ...] = ()) -> dict[str, Any]:
    """Return the report of a source that got these hours, newest first."""
    redis: Any = state.redis
    options = {"museum": json.dumps({"gone": gone})} if gone else {}
    await state.scripts.set_rates(await lead(state), [("museum", 5.0, 5.0)], {}, options)
    for ago, values in enumerate(hours, 1):
        hour = int(time.time()) // HOUR - ago
        await redis.hset(f"{state.keys.requests_of}{hour // 96}:museum", str(hour % 96), msgpack.packb(values))
    return dict(await site_report(state, "museum"))


def said(report: dict[str, Any]) -> str:
    """Return the page of a report without its tags."""
    text = page(report).decode()
    return unescape(re.sub(r"<[^>]*>", " ", text.partition("<main>")[2]))


async def text_of(state: State, *hours: list[Any], gone: tuple[int, ...] = ()) -> str:
    return said(await report_of(state, *hours, gone=gone))


async def test_a_status_means_what_the_crawl_makes_of_it(state: State) -> None:
    kinds = ["200", 9, "304", 4, "403", 3, "404", 2, "416", 1, "500", 1]
    text = re.sub(r"\s+", " ", await text_of(state, [20, 1, 0, 9, 2, 3, 5000, *kinds], gone=(403,)))
    for status in ("403 3 15 %", "404 2 10 %"):
        assert f"{status} not there: noted; an image is not tried again" in text
    assert "416 1 5 % a part of an image could not be had: we ask for the whole" in text
    assert "304 4 20 % not changed since we had it last" in text
    assert "500 1 5 % an error: when too many" in text
    assert "do not come back" not in text  # a robots.txt that is not there is asked for again


@pytest.mark.parametrize(
    ("result", "kind"),
    [("200", "good"), ("304", "moved"), ("416", "moved"), ("403", "missing"), ("401", "bad"), ("timeout", "bad")],
)
def test_the_kind_of_a_result(result: str, kind: str) -> None:
    assert kind_of(result, [403]) == kind
    assert kind_of("403", ()) == "bad"


async def test_only_the_busiest_second_of_each_hour_is_said_to_be_within_the_rate(state: State) -> None:
    text = await text_of(state, [9, 1, 0, 9, 6, 3, 5000, "200", 9], [9, 1, 0, 9, 2, 3, 1000, "200", 9])
    assert "In each hour the busiest second had no more requests than we allow ourselves at the highest" in text
    assert "limit in that hour: 6.5 a second" in text
    text = await text_of(state, [9, 1, 0, 9, 7, 3, 5000, "200", 9])
    assert "In 1 of 2 hours a second had more requests than we allow ourselves." in text


async def test_each_number_stands_where_it_belongs(state: State) -> None:
    report = await report_of(state, [20, 4000, 3, 9, 6, 3, 5000, "200", 9, "404", 4, "500", 7])
    own = {"refused_by_robots": 11, "opt_outs_honoured": 12, "slowed": 13, "held": 14, "opened": 15, "halted": 16}
    report["totals"] |= own | {"maybe_more": 17, "for_robots_txt": 18, "mean_rps": 1.9, "not_sent": {"dns": 21}}
    [hour] = report["hours"]
    hour["mean_rps"] = 2.5
    file = {"url": "https://museum.example/robots.txt", "fetched": report["made"], "status": "200"}
    more = {"read_from": "https://elsewhere.example/robots.txt", "obeyed": "as it is", "characters": 99}
    report["robots"] = [file | more | {"text": "Disallow: /a\n"}]
    text = re.sub(r"\s+", " ", said(report | {"state": "halted"}))
    assert "requests 20 " in text
    assert "bytes received 4 kB 200 B a request" in text
    assert "busiest second 6 " in text
    assert "mean rate while crawling 1.9/s" in text
    assert "not requested 11 because robots.txt" in text
    assert "opt-outs honoured 12 because" in text
    assert "Slowed down 13 times" in text
    assert "a Retry-After 14 times, paused because of errors 15 times, stopped 16 times" in text
    assert "Up to 17 more may have been sent" in text
    assert "18 of the requests were for a robots.txt" in text
    assert re.search(r"Before a request could be sent .* 21 ", text)
    assert re.search(r" 20 4 kB 2\.5/s 6 6\.5 5/s 11 ", text)  # the hour: 11 of its answers are no 2xx
    assert "We request nothing of this site at present: the crawl of it was stopped" in text
    assert "answer 200: as it is" in text
    assert "It leads to https://elsewhere.example/robots.txt" in text
    assert "Disallow: /a" in text
    assert "86 more characters are not shown" in text


async def test_the_hours_of_a_day_are_added_up(state: State) -> None:
    text = await text_of(state, *([10, 1, 0, 9, 2, 3, 5000, "200", 10] for _ in range(30)))
    days = re.findall(r" \d{4}-\d\d-\d\d: (\d+) requests", text)
    assert len(days) in {2, 3}
    assert sum(map(int, days)) == 300
