"""Reads a sitemap: undoes its content codings, and finds what it names."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any, Self

from scrapy.crawler import Crawler

from crawlproject import config
from crawlproject.imaging.codings import content_codings, decoded_beginning
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.pages.items import FetchedSitemap
from crawlproject.pages.revisits import look_of
from crawlproject.pages.sitemaps import MAX_BYTES, Sitemap, read_sitemap
from crawlproject.politeness.outcomes import UNREADABLE, Failure
from crawlproject.threads import in_thread


class SitemapPipeline:
    """Reads a `FetchedSitemap` in a thread: a large one takes a second, and the worst ones a few.

    One at a time: several would take turns with the reactor, and their memory adds up.
    """

    def __init__(self, settings: config.Config) -> None:
        self.settings = settings
        self._turn = asyncio.Lock()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the pipeline."""
        return cls(config.load(crawler.settings))

    async def process_item(self, item: Any) -> Any:
        """Return a `FetchedSitemap` with what was read in it, or a failure; other items as they are."""
        if not isinstance(item, FetchedSitemap):
            return item
        response = item.response
        shortest = self.settings.pages_revisit
        if response.status == 304:
            item.look = item.before and item.before.after(item.before, shortest) if shortest else None
            return item
        codings = content_codings(response.headers.getlist("Content-Encoding"))
        try:
            async with self._turn:
                item.sitemap = await in_thread("sitemap", lambda: _read(response.url, response.body, codings))
        except UnreadableImage as error:
            return Failure(UNREADABLE, str(error), response.status)
        if shortest:
            digest = hashlib.sha1(response.body, usedforsecurity=False).hexdigest()
            item.look = look_of(response.url, response.headers, digest).after(item.before, shortest)
        return item


def _read(url: str, body: bytes, codings: tuple[str, ...]) -> Sitemap:
    body = decoded_beginning(body, codings, MAX_BYTES)
    if body.startswith(b"\x1f\x8b"):  # a file of gzip, whatever its coding
        body = decoded_beginning(body, ("gzip",), MAX_BYTES)
    return read_sitemap(url, body)
