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
    return FetchedPage(URL, "museum", 0, None, None, "2026-11-22T12:00:00+00:00", fetch, response)


@pytest.mark.parametrize(("paragraphs", "meanwhile"), [(10, False), (5_000, True)])
async def test_a_large_page_is_read_beside_the_event_loop(paragraphs: int, meanwhile: bool) -> None:
    reading = asyncio.create_task(PagePipeline(config.load({})).process_item(page(b"<p>words</p>" * paragraphs)))
    await asyncio.sleep(0)
    assert reading.done() is not meanwhile
    assert isinstance(await reading, FetchedPage)


@pytest.mark.parametrize(
    "body",
    [
        b"<BASE href='http://museum.example/" + b"%C3%A4" * 300 + b"/'>" + b"<a href=1?b>" * 9,
        "\ufeff<base href=/x/><a href=y>z</a>".encode("utf-16-le"),
    ],
)
async def test_a_small_page_with_a_base_is_read_beside_the_event_loop_too(body: bytes) -> None:
    """Each of its links may be joined to it: 16 KB with a thousand of them take a quarter of a second."""
    reading = asyncio.create_task(PagePipeline(config.load({})).process_item(page(body)))
    await asyncio.sleep(0)
    assert not reading.done()
    item = await reading
    assert len(item.page.links) == 1


@pytest.mark.parametrize(
    "piece", ["<font size={0}><p>", "<ul><li>", "<a href='?a={0}&b=2&c=3'>", "<table><tr><td>"], ids=str
)
async def test_a_small_page_that_is_dear_is_read_beside_the_event_loop_too(piece: str) -> None:
    """16 KB of the first take 80 ms."""
    body = "".join(piece.format(number) for number in range(16_000 // len(piece))).encode()
    reading = asyncio.create_task(PagePipeline(config.load({})).process_item(page(body)))
    await asyncio.sleep(0)
    assert not reading.done()
    await reading


async def test_an_ordinary_small_page_is_not() -> None:
    links = "".join(f"<li><a href='/works/{n}?page={n}'><b>Work</b> {n}</a> <i>1862</i>" for n in range(100))
    reading = asyncio.create_task(PagePipeline(config.load({})).process_item(page(f"<ul>{links}</ul>".encode())))
    await asyncio.sleep(0)
    assert reading.done()
    assert len((await reading).page.links) == 100


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
