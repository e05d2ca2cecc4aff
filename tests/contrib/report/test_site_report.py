"""The report of a source: totals of its hours, and each robots.txt that holds for it."""

from __future__ import annotations

import json
import re
import time
from html import unescape
from itertools import chain
from typing import Any

import msgpack
import pytest

from crawlproject.contrib.report.rendering import page
from crawlproject.contrib.report.site_report import site_report
from crawlproject.models import Requested
from crawlproject.state.client import State
from tests.robots_copies import keep_copy
from tests.state.calls.calls import lead

HOUR = 3600


async def put_hour(state: State, source: str, ago: int, values: list[Any]) -> int:
    """Have an hour of requests, so many hours ago; return when it began."""
    redis: Any = state.redis
    hour = int(time.time()) // HOUR - ago
    key = f"{state.keys.requests_of}{hour // 96}:{source}"
    *numbers, kinds = values
    await redis.hset(key, str(hour % 96), msgpack.packb([*numbers, *chain.from_iterable(kinds.items())]))
    return hour * HOUR


async def test_hours_are_added_up(state: State) -> None:
    old = await put_hour(
        state, "museum", 500, [11, 1000, 0, 10_000, 2, 7, 1000, {"200": 9, "404": 2, "robots": 4}]
    )
    late = await put_hour(state, "museum", 2, [21, 500, 1000, 11_000, 9, 3, 5000, {"200": 21, "txt": 1}])
    await put_hour(state, "museum", 1, [0, 0, 3_600_000, 0, 0, 0, 0, {"-dns": 3, "lost": 2, "opt_out": 1}])
    await put_hour(state, "museum", 2161, [99, 99, 0, 1, 99, 0, 99_000, {"200": 99}])  # over 90 days ago
    said = await site_report(state, "museum")
    totals = said["totals"]
    assert [hour["requests"] for hour in said["hours"]] == [11, 21, 0]
    assert (totals["requests"], totals["bytes"], totals["results"]) == (32, 1500, {"200": 30, "404": 2})
    assert totals["mean_rps"] == pytest.approx((10 + 20) / (10 + 10))
    assert totals["first"] == time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(old))
    assert totals["last"] == time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(late + 11))
    assert totals["peak"] == {
        "requests": 9,
        "at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(late + 3)),
        "rate": 5.0,
        "allowed": 6.5,
    }
    assert totals["hours_above_allowed"] == 1
    assert (totals["not_sent"], totals["maybe_more"], totals["for_robots_txt"]) == ({"dns": 3}, 2, 1)
    assert (totals["refused_by_robots"], totals["opt_outs_honoured"]) == (4, 1)
    assert (said["hours"][2]["peak"], said["hours"][2]["first"], said["hours"][2]["mean_rps"]) == (
        None,
        None,
        None,
    )


async def test_a_status_means_on_the_page_what_the_crawl_makes_of_it(state: State) -> None:
    options = {"museum": json.dumps({"gone": [403]})}
    await state.scripts.set_rates(await lead(state), [("museum", 5.0, 5.0)], {}, options)
    kinds = {"200": 9, "304": 4, "403": 3, "404": 2, "416": 1, "500": 1, "opened": 1}
    await put_hour(state, "museum", 1, [20, 1, 0, 9, 2, 3, 5000, kinds])
    html = page(await site_report(state, "museum")).decode().partition("<main>")[2]
    text = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", html)))
    for status in ("403 3 15 %", "404 2 10 %"):
        assert f"{status} not there: noted; an image is not tried again" in text
    assert "416 1 5 % a part of an image could not be had: we ask for the whole" in text
    assert "304 4 20 % not changed since we had it last" in text
    assert "500 1 5 % an error: when too many" in text
    assert "do not come back" not in text  # a robots.txt that is not there is asked for again
    assert "slow answers), waited for a Retry-After 0 times, paused because of errors 1 time, stopped" in text


@pytest.mark.parametrize(("lines", "told"), [(60, ""), (61, "14 more characters are not shown.")])
async def test_the_page_tells_how_much_of_a_robots_txt_it_does_not_show(
    state: State, lines: int, told: str
) -> None:
    fence = await lead(state)
    await state.scripts.set_rates(fence, [("museum.example", 5.0, 5.0)], {})
    url, body = "https://museum.example/robots.txt", b"User-agent: *\r\n" + b"Disallow: /x\r\n" * (lines - 1)
    await state.scripts.look_robots("t", url, "museum.example")
    await state.scripts.keep_robots(
        "t", url, kind="rules", body=body, ttl=60, source="museum.example", retry=60.0, retry_max=3600.0
    )
    html = page(await site_report(state, "museum.example")).decode()
    assert "<pre>User-agent: *\nDisallow: /x\n" in html
    assert re.findall("[0-9]+ more characters are not shown.", html) == ([told] if told else [])


async def test_each_robots_txt_is_told_with_what_follows_from_it(state: State) -> None:
    fence = await lead(state)
    rows = [("museum.example", 5.0, 5.0), ("archive.example", 5.0, 5.0)]
    options = {"archive.example": json.dumps({"robots": "ignore", "hosts": ["archive.example"]})}
    await state.scripts.set_rates(fence, rows, {}, options)
    hosts = {
        "www": ("rules", b"User-agent: *\nDisallow: /x\nCrawl-delay: 7\n"),
        "maps": ("rules", b"Sitemap: https://maps.museum.example/s.xml\n"),
        "none": ("none", b""),
        "led": ("redirect", b"https://www.museum.example/robots.txt"),
        "evil": ("refused", b"it leads to 127.0.0.1"),
    }
    pauses: Any = {"retry": 60.0, "retry_max": 3600.0}
    for number, (host, (kind, body)) in enumerate(hosts.items()):
        url = f"https://{host}.museum.example/robots.txt"
        sent = Requested("museum.example", int(time.time() * 1e6), 5.0, str(200 + number), 9)
        await state.scripts.look_robots("t", url, "museum.example")
        await state.scripts.keep_robots(
            "t",
            url,
            kind=kind,
            body=body,
            ttl=60,
            source="museum.example",
            requested=sent,
            **pauses,
        )
    await keep_copy(state, "http://museum.example/robots.txt", "other", kind="none")
    said = {
        one["url"].split("//")[1].split(".")[0]: one
        for one in (await site_report(state, "museum.example"))["robots"]
    }
    assert {name: one["status"] for name, one in said.items()} == {
        **{name: str(200 + number) for number, name in enumerate(hosts)},
        "museum": None,  # that was not fetched for it
    }
    assert said["www"]["text"] == "User-agent: *\nDisallow: /x\nCrawl-delay: 7\n"
    assert said["www"]["obeyed"] == "its rules are obeyed, and the 7 s between requests that it asks for"
    assert "only its Sitemap lines are kept" in said["maps"]["obeyed"]
    assert said["none"]["obeyed"] == "there is none, or it has no rules for us: everything is allowed"
    assert (said["led"]["read_from"], said["led"]["text"]) == (said["www"]["url"], said["www"]["text"])
    assert said["evil"]["obeyed"] == "nothing is requested: it leads to 127.0.0.1"
    assert said["museum"]["fetched"] is None
    [ignored] = (await site_report(state, "archive.example"))["robots"]
    assert ignored["obeyed"] == "not asked for: the site has given us permission"
