"""Requests that callbacks yield owe nothing to the request that led there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response

from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.middlewares.callback_requests import CallbackRequestsMiddleware
from crawlproject.models import LEASE, PACED_AS, RETRIES, SOURCE, Lease

MUSEUM, ELSEWHERE = "https://www.museum.org/a", "https://elsewhere.net/a"


async def found(scheduler: FrontierScheduler, url: str, came_from: list[str], link: str) -> Request:
    """Return the request for `link` that a callback has yielded with all of its response's meta."""
    meta: dict[str, Any] = {
        SOURCE: "photos",
        PACED_AS: "photos",
        RETRIES: 1,
    }
    if came_from:
        meta["redirect_urls"] = came_from
    meta[LEASE] = Lease("1.0:photos", 0.0, 0.0, 0, b"")
    response = Response(url, request=Request(url, meta=meta))

    async def callback() -> AsyncIterator[Any]:
        yield Request(link, meta=response.meta)
        yield {"an": "item"}

    middleware = CallbackRequestsMiddleware.from_crawler(scheduler.crawler)
    request, item = [one async for one in middleware.process_spider_output_async(response, callback())]
    assert item == {"an": "item"}
    assert isinstance(request, Request)
    return request


@pytest.mark.parametrize(
    ("url", "came_from", "link", "source"),
    [
        (MUSEUM, [], "https://images.museum.org/b", "photos"),
        (MUSEUM, ["https://museum.org/"], "https://images.museum.org/b", "photos"),
        (MUSEUM, [], ELSEWHERE, None),
        (ELSEWHERE, [MUSEUM], "https://elsewhere.net/b", None),  # paid for itself, and its links do
    ],
)
async def test_a_link_is_of_its_pages_source_within_the_domain_of_the_seed(
    scheduler: FrontierScheduler, url: str, came_from: list[str], link: str, source: str | None
) -> None:
    request = await found(scheduler, url, came_from, link)
    assert request.meta == ({} if source is None else {SOURCE: source})
