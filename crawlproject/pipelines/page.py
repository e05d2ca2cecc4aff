"""Reads a page or a sitemap: undoes its content codings, and finds what it says."""

from __future__ import annotations

import asyncio
import hashlib
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self

from scrapy.crawler import Crawler

from crawlproject import config
from crawlproject.imaging.codings import content_codings, decoded_beginning
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.pages.items import Fetched, FetchedPage, FetchedSitemap
from crawlproject.pages.page import MAX_BYTES, read_page
from crawlproject.pages.revisits import is_home, look_of
from crawlproject.pages.rules import NO_IMAGES, header
from crawlproject.pages.sitemaps import MAX_BYTES as MAX_SITEMAP_BYTES
from crawlproject.pages.sitemaps import Sitemap, read_sitemap
from crawlproject.politeness.outcomes import NOT_HTML, UNREADABLE, Failure
from crawlproject.texts import printable
from crawlproject.threads import in_thread

# Bytes; fewer take 0.15 s at most, whatever they are, as a rule 3 ms: a thread would add a fifth to that, as it
# and the event loop want the interpreter at the same time.
_LARGE = 64 * 1024


class PagePipeline:
    """Reads a `FetchedSitemap`, or the beginning of a `FetchedPage`: `MAX_BYTES`, whatever it would decode to.

    A large page is read in a thread: one that is made to be dear takes up to a third of a second. So is a sitemap:
    a large one takes a second, and the worst ones a few. One at a time: several would take turns with the reactor,
    and their memory adds up.
    """

    def __init__(self, settings: config.Config) -> None:
        self.settings = settings
        self.forbidding = frozenset(settings.opt_outs) - NO_IMAGES  # those forbid its images, not the page
        self._turn = asyncio.Lock()  # of sitemaps

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the pipeline with the bounds of the settings."""
        return cls(config.load(crawler.settings))

    async def process_item(self, item: Any) -> Any:
        """Return a page or a sitemap with what was read in it, or a failure; other items as they are."""
        if not isinstance(item, Fetched):
            return item
        if item.response.status == 304:
            self._look_again(item, None)
            return item
        codings = content_codings(item.response.headers.getlist("Content-Encoding"))
        try:
            if isinstance(item, FetchedSitemap):
                return await self._sitemap(item, codings)
            assert isinstance(item, FetchedPage)
            return await self._page(item, codings)
        except UnreadableImage as error:
            return Failure(UNREADABLE, str(error), item.response.status)

    async def _page(self, item: FetchedPage, codings: tuple[str, ...]) -> FetchedPage | Failure:
        response, began = item.response, time.perf_counter()
        item.body = decoded_beginning(response.body, codings, MAX_BYTES)
        read = partial(
            read_page,
            *(response.url, response.headers, item.body, datetime.now(UTC)),
            link_texts=self.settings.pages_links != "none",
            media=self.settings.pages_media,
        )
        page = item.page = await asyncio.to_thread(read) if len(item.body) > _LARGE else read()
        item.parse_s = time.perf_counter() - began
        if page is None:
            content_type = header(response.headers, "content-type")
            reason = f"not HTML (Content-Type: {printable(content_type) or 'none'})"
            return Failure(NOT_HTML, reason, response.status, content_type=content_type)
        item.refused = tuple(name for name in page.rules.opt_outs if name in self.forbidding)
        if item.before or item.depth == 0 or is_home(item.url):
            self._look_again(item, page.digest or "")
        return item

    async def _sitemap(self, item: FetchedSitemap, codings: tuple[str, ...]) -> FetchedSitemap:
        response = item.response
        async with self._turn:
            item.sitemap = await in_thread("sitemap", lambda: _read_sitemap(response.url, response.body, codings))
        self._look_again(item, hashlib.sha1(response.body, usedforsecurity=False).hexdigest())
        return item

    def _look_again(self, item: Fetched, digest: str | None) -> None:
        """Note what is known now, by its digest, of what is looked at again; None: what was known before."""
        if shortest := self.settings.pages_revisit:
            response = item.response
            now = item.before if digest is None else look_of(response.url, response.headers, digest)
            item.look = now and now.after(item.before, shortest)


def _read_sitemap(url: str, body: bytes, codings: tuple[str, ...]) -> Sitemap:
    body = decoded_beginning(body, codings, MAX_SITEMAP_BYTES)
    if body.startswith(b"\x1f\x8b"):  # a file of gzip, whatever its coding
        body = decoded_beginning(body, ("gzip",), MAX_SITEMAP_BYTES)
    return read_sitemap(url, body)
