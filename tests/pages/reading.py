"""Reads a page as the crawl does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from scrapy.http import Headers, HtmlResponse

from crawlproject.models import Fetch
from crawlproject.pages.items import FetchedPage
from crawlproject.pages.page import Page, read_page

URL = "https://museum.example/halls/"
NOW = datetime(2026, 11, 22, tzinfo=UTC)


def read(
    html: str | bytes,
    *,
    url: str = URL,
    content_type: str = "text/html",
    link_texts: bool = False,
    media: tuple[str, ...] = (),
    **headers: str,
) -> Page:
    """Return what a page says, which must be HTML."""
    body = html.encode() if isinstance(html, str) else html
    named = {"Content-Type": [content_type]} | {name.replace("_", "-"): [value] for name, value in headers.items()}
    page = read_page(url, Headers(named), body, NOW, link_texts=link_texts, media=media)
    assert page is not None
    return page


def fetched(body: bytes, url: str, headers: dict[str, str] | None = None, **more: Any) -> FetchedPage:
    """Return the item of a page that was fetched."""
    response = HtmlResponse(url, body=body, headers=headers)
    fetch = Fetch(final_url=url, redirects=0, attempts=1, fetch_s=0.1)
    at = "2026-11-22T12:00:00.001+00:00"
    return FetchedPage(url=url, source="museum", fetched_at=at, fetch=fetch, response=response, **more)
