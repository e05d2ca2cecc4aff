"""The page of a report: what it tells the admin of a site is what the crawl does."""

from __future__ import annotations

import json
import re
import time
from html import unescape
from typing import Any

import msgpack

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
    kinds = {"200": 9, "304": 4, "403": 3, "404": 2, "416": 1, "500": 1}
    text = re.sub(r"\s+", " ", await text_of(state, [20, 1, 0, 9, 2, 3, 5000, kinds], gone=(403,)))
    for status in ("403 3 15 %", "404 2 10 %"):
        assert f"{status} not there: noted; an image is not tried again" in text
    assert "416 1 5 % a part of an image could not be had: we ask for the whole" in text
    assert "304 4 20 % not changed since we had it last" in text
    assert "500 1 5 % an error: when too many" in text
    assert "do not come back" not in text  # a robots.txt that is not there is asked for again
