"""Reading a page."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from scrapy.http import Headers, HtmlResponse

from crawlproject import config
from crawlproject.models import Fetch
from crawlproject.pages.items import FetchedPage
from crawlproject.pipelines.page import PagePipeline
from crawlproject.politeness.outcomes import Failure

URL = "http://museum.example/"


def page(body: bytes, **headers: str) -> FetchedPage:
    sent = Headers({"Content-Type": "text/html", **headers})
    response = HtmlResponse(URL, headers=sent, body=body)
    fetch = Fetch(final_url=URL, redirects=0, attempts=1, fetch_s=0.1)
    fetched_at = "2026-11-22T12:00:00+00:00"
    return FetchedPage(url=URL, source="museum", fetched_at=fetched_at, fetch=fetch, response=response)


@pytest.mark.parametrize(("paragraphs", "meanwhile"), [(10, False), (5_000, True)])
async def test_a_large_page_is_read_beside_the_event_loop(paragraphs: int, meanwhile: bool) -> None:
    reading = asyncio.create_task(PagePipeline(config.load({})).process_item(page(b"<p>words</p>" * paragraphs)))
    await asyncio.sleep(0)
    assert reading.done() is not meanwhile
    assert isinstance(await reading, FetchedPage)


async def test_what_grows_when_it_is_decoded_is_large() -> None:
    packed = page(gzip.compress(b"<p>words</p>" * 5_000), **{"Content-Encoding": "gzip"})
    reading = asyncio.create_task(PagePipeline(config.load({})).process_item(packed))
    await asyncio.sleep(0)
    assert not reading.done()
    item = await reading
    assert item.body.startswith(b"<p>words</p>")


async def test_what_is_not_html_or_cannot_be_decoded_is_a_failure() -> None:
    pipeline = PagePipeline(config.load({}))
    picture = await pipeline.process_item(page(b"\x89PNG\r\n\x1a\n" + bytes(100)))
    broken = await pipeline.process_item(page(b"no gzip", **{"Content-Encoding": "gzip"}))
    assert isinstance(picture, Failure)
    assert isinstance(broken, Failure)
    assert (picture.reason, broken.outcome.kind) == ("not HTML (Content-Type: text/html)", "decode")
