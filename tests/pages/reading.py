"""Reads a page as the crawl does."""

from __future__ import annotations

from datetime import UTC, datetime

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
    page = read_page(url, named, body, NOW, link_texts=link_texts, media=media)
    assert page is not None
    return page
