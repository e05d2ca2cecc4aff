"""Storing what pages lead to."""

from __future__ import annotations

import asyncio

from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.pages.items import FetchedPage, ReadPage
from crawlproject.pipelines.links import LinksPipeline
from tests.leading import lead
from tests.pages.reading import fetched, read


def page(number: int) -> FetchedPage:
    url = f"https://museum.example/{number}"
    html = f'<p>{number}</p><a href="/{number}/next">next</a><img src="/{number}.jpg">'
    return fetched(html.encode(), url, page=read(html, url=url))


async def test_many_pages_at_the_same_time_leave_connections_to_redis_free(scheduler: FrontierScheduler) -> None:
    await lead(scheduler.state)
    pipeline = LinksPipeline(scheduler.crawler)
    pipeline.open_spider()
    items = await asyncio.gather(*(pipeline.process_item(page(number)) for number in range(250)))
    assert all(isinstance(item, ReadPage) for item in items)
