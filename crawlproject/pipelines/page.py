"""Reads a page: undoes its content codings, and finds what it says."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self

from scrapy.crawler import Crawler

from crawlproject import config
from crawlproject.imaging.codings import content_codings, decoded_beginning
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.pages.items import FetchedPage
from crawlproject.pages.page import MAX_BYTES, Page, read_page
from crawlproject.pages.revisits import Look, is_home, look_of
from crawlproject.pages.rules import NO_IMAGES, header
from crawlproject.politeness.outcomes import NOT_HTML, UNREADABLE, Failure
from crawlproject.texts import printable

# Bytes; fewer take 0.15 s at most, whatever they are, as a rule 3 ms: a thread would add a fifth to that, as it
# and the event loop want the interpreter at the same time.
_LARGE = 64 * 1024


class PagePipeline:
    """Reads the beginning of a `FetchedPage`, `MAX_BYTES` of it, whatever it would decode to.

    What is large is read in a thread: a page that is made to be dear takes up to a third of a second.
    """

    def __init__(self, settings: config.Config) -> None:
        self.settings = settings
        self.forbidding = frozenset(settings.opt_outs) - NO_IMAGES  # those forbid its images, not the page

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the pipeline with the bounds of the settings."""
        return cls(config.load(crawler.settings))

    async def process_item(self, item: Any) -> Any:
        """Return a `FetchedPage` with what was read in it, or a failure; other items as they are."""
        if not isinstance(item, FetchedPage):
            return item
        response, most = item.response, MAX_BYTES
        if response.status == 304:
            shortest = self.settings.pages_revisit
            item.look = item.before.after(item.before, shortest) if item.before and shortest else None
            return item
        codings, began = content_codings(response.headers.getlist("Content-Encoding")), time.perf_counter()
        try:
            item.body = decoded_beginning(response.body, codings, most)
        except UnreadableImage as error:
            return Failure(UNREADABLE, str(error), response.status)
        read = partial(
            read_page,
            *(response.url, response.headers, item.body, datetime.now(UTC)),
            link_texts=self.settings.pages_links != "none",
            media=self.settings.pages_media,
        )
        item.page = await asyncio.to_thread(read) if len(item.body) > _LARGE else read()
        item.parse_s = time.perf_counter() - began
        if item.page is None:
            content_type = header(response.headers, "content-type")
            reason = f"not HTML (Content-Type: {printable(content_type) or 'none'})"
            return Failure(NOT_HTML, reason, response.status, content_type=content_type)
        item.refused = tuple(name for name in item.page.rules.opt_outs if name in self.forbidding)
        item.look = self._look(item, item.page)
        return item

    def _look(self, item: FetchedPage, page: Page) -> Look | None:
        """Return what is known of a page now, if it is to be looked at again."""
        shortest = self.settings.pages_revisit
        if not shortest or not (item.before or item.depth == 0 or is_home(item.url)):
            return None
        look = look_of(item.response.url, item.response.headers, page.digest or "")
        return look.after(item.before, shortest)
