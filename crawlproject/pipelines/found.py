"""Stores what was found on a page, then makes its event."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, Self, TypeVar

from scrapy.crawler import Crawler

from crawlproject import config
from crawlproject.frontier.discovery import FOUND as FOUND_PRIORITY
from crawlproject.frontier.discovery import POOR, Discovery, Link
from crawlproject.models import FOUND, MOST_DEPTH, SCOPE, Failure, FetchedPage, PageEvent, ReadPage
from crawlproject.pages.page import Page
from crawlproject.pages.scope import Scope
from crawlproject.pages.traps import Worth, judge
from crawlproject.politeness.outcomes import KEPT_BACK, STOPPED
from crawlproject.sources.domains import domain_of_url
from crawlproject.state.client import REDIS_TROUBLE
from crawlproject.worker import worker_of

T = TypeVar("T")

_IMAGES = "images"  # the spider that gets the images
_ERRBACK = "failed"  # of both spiders (spiders/one_item.py)
_RETRY_S = 0.5


class _Stopping(Exception):
    """The worker has to end before something could be stored."""


class FoundPipeline:
    """Stores the links of a page that are in scope, and its images, then makes its event.

    The lease keeper emits the event. The images go to the frontier of the spider `images`. No links are followed
    from a page that says `nofollow`, nor from one whose text was last seen under another address of its domain. Of
    a page that forbids to be kept there is no event, and none of its images is fetched: it is a dead letter, as a
    picture that forbids it is.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.settings = config.load(crawler.settings)
        self.year = datetime.now(UTC).year

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the pipeline of `crawler`."""
        return cls(crawler)

    def open_spider(self) -> None:
        """Find the frontiers of this spider and of `images`."""
        self.worker = worker_of(self.crawler)
        state, most = self.worker.state, self.settings.pages_budget_max
        self.links = Discovery(state.scripts, self.settings, errback=_ERRBACK)
        # Pages are within a budget, and so are their images: no other one but the bound of all budgets, of which
        # links of their priority take a quarter.
        whole = replace(self.settings, pages_budget=4 * most or 1, pages_budget_max=4 * most)
        # They lead to any host, and perhaps nobody crawls them: half of the frontier is left to seeds.
        half = self.settings.high_water // 2
        self.images = Discovery(state.scripts_of(_IMAGES), whole, errback=_ERRBACK, most_outstanding=half)

    async def process_item(self, item: Any) -> Any:
        """Return the event of a page, or a failure; other items as they are."""
        if not isinstance(item, FetchedPage):
            return item
        page = item.page
        assert page is not None, "ITEM_PIPELINES must have the page pipeline before this one"
        decided: Counter[str] = Counter()
        links = list(self._links_of(item, page, decided))
        try:
            is_new = page.text_digest is None or await self._lasting(lambda: self._is_new(item.url, page))
            if is_new:
                decided.update(await self._admitted(self.links, links))
            if not item.refused:
                await self._admitted(self.images, list(self._images_of(item, page)))
        except _Stopping:
            return Failure("", item.url, item.source, STOPPED, "the worker stops and stores no more links")
        if item.refused:
            reason = f"opt-out: {', '.join(item.refused)}"
            return Failure("", item.url, item.source, KEPT_BACK, reason, status=200)
        event = PageEvent(
            url=item.url,
            source=item.source,
            status=item.response.status,
            **asdict(item.fetch),
            digest=page.text_digest,
            title=page.title,
            language=page.language,
            licence=page.licence and page.licence.url,
            links=len(links),
            images=len(page.images),
            depth=item.depth,
            fetched_at=item.fetched_at,
            record=item.warc,
        )
        return ReadPage(event, is_new, len(item.body), item.parse_s, decided)

    def _links_of(self, item: FetchedPage, page: Page, decided: Counter[str]) -> Iterator[Link]:
        """Yield the links to pages that are in scope and no traps, with what is stored of their seed.

        Traps are counted in `decided`.
        """
        most = self.settings.pages_depth if item.most_depth is None else item.most_depth
        if item.depth >= min(most, self.settings.pages_depth):
            return
        scope, depth, meta = self._scope_of(item), item.depth + 1, dict[str, Any]()
        if item.scope is not None:
            meta[SCOPE] = item.scope
        if item.most_depth is not None:
            meta[MOST_DEPTH] = item.most_depth
        for link in page.links:
            if not scope.has(link.url):
                continue
            worth, reason = judge(link.url, depth, nofollow=link.nofollow, year=self.year)
            if worth is Worth.REFUSED:
                self.crawler.stats.inc_value(f"links/refused/{reason}")
                decided["refused"] += 1
                continue
            priority = POOR if worth is Worth.POOR else FOUND_PRIORITY
            yield Link(link.url, priority, depth, source=_source_of(item, link.url), meta=meta)

    def _scope_of(self, item: FetchedPage) -> Scope:
        """Return the scope of a page's seed: in the settings' scope the seed is where each of its pages is."""
        if item.scope is not None:
            with suppress(ValueError):  # not written by crawlproject
                return Scope.parse(item.scope)
        return Scope.of_seed(item.url, self.settings.pages_scope)

    def _images_of(self, item: FetchedPage, page: Page) -> Iterator[Link]:
        """Yield the images that are wanted, with what the page says of each."""
        wanted = self.settings.pages_images
        for image in page.images if wanted != "none" else ():
            licence = image.licence
            if wanted == "licensed" and (licence is None or not licence.is_open):
                continue
            told = {
                "found_on": item.fetch.final_url,
                "licence": licence and licence.url,
                "alt": image.alt,
                "title": image.title,
                "creator": image.creator,
            }
            identifier = str(uuid.uuid5(uuid.NAMESPACE_URL, image.url))
            meta = {FOUND: {name: text for name, text in told.items() if text}}
            # The lowest priority: seeds of that spider have it, too, unless they say another, and go first.
            yield Link(image.url, POOR, identifier=identifier, source=_source_of(item, image.url), meta=meta)

    async def _admitted(self, frontier: Discovery, links: list[Link]) -> Mapping[str, int]:
        """Admit links, however long it takes until there is a frontier to take them; return what was decided here.

        Raises:
            _Stopping: the shutdown grace is over.

        """
        while links:
            found = await self._lasting(lambda: frontier.admit(links))
            if found is not None:
                return found.unasked
            await self._pause()
        return {}

    async def _is_new(self, url: str, page: Page) -> bool:
        """Tell whether the visible text of a page is new to its domain, or was last seen under this address."""
        text = hashlib.blake2b(f"{domain_of_url(url)}\n{page.text_digest}".encode(), digest_size=9).digest()
        address = hashlib.blake2b(url.encode(), digest_size=5).digest()
        return await self.worker.state.scripts.note_text(text, address, places=self.settings.pages_texts)

    async def _lasting(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the answer of Redis, however long it takes to come back.

        Raises:
            _Stopping: the shutdown grace is over.

        """
        while True:
            try:
                return await call()
            except REDIS_TROUBLE as error:
                self.worker.state.failed(error)
                await self._pause()

    async def _pause(self) -> None:
        if self.worker.shutdown.grace_over.is_set():
            raise _Stopping
        await asyncio.sleep(_RETRY_S)


def _source_of(item: FetchedPage, link: str) -> str | None:
    """Return the source that is named for a link: that of its page, if that is of its domain and not it."""
    domain = domain_of_url(link)
    return item.source if item.source != domain and domain == domain_of_url(item.url) else None
