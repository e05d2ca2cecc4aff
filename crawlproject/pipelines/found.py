"""Stores what was found on a page or in a sitemap; then a page has its event."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Self, TypeVar

from scrapy.crawler import Crawler

from crawlproject import config
from crawlproject.frontier.discovery import FOUND as FOUND_PRIORITY
from crawlproject.frontier.discovery import LINKS_A_CALL, LISTED, POOR, Discovered, Discovery, Link
from crawlproject.frontier.worker import worker_of
from crawlproject.models import (
    FOUND,
    LEASE,
    MOST_DEPTH,
    SCOPE,
    SITEMAP,
    PageEvent,
)
from crawlproject.pages import revisits
from crawlproject.pages.images import FoundImage
from crawlproject.pages.items import FetchedPage, FetchedSitemap, ReadPage
from crawlproject.pages.page import Page
from crawlproject.pages.revisits import UNCHANGED
from crawlproject.pages.rules import rules_of
from crawlproject.pages.scope import DEFAULT, Scope
from crawlproject.pages.sitemaps import INDEX_DEPTH, MOST_SITEMAPS, Sitemap
from crawlproject.pages.traps import DEEPEST, Worth, judge
from crawlproject.politeness.outcomes import KEPT_BACK, STOPPED, Failure
from crawlproject.politeness.robots_txt import robots_url
from crawlproject.sources.domains import domain_of_url
from crawlproject.state.client import REDIS_TROUBLE
from crawlproject.state.scripts import Budget

T = TypeVar("T")

_IMAGES = "images"  # the spider that gets the images
_RETRY_S = 0.5
_MOST_ELSEWHERE = 8  # sitemaps on other domains than the robots.txt that names them
_LEFT_OUT = "sitemaps_left_out"  # count: sitemaps that were named and are not fetched
_TEXTS = 4_194_304  # pages whose text is remembered in all, 9 bytes each
_MOST_HOSTS = 50_000  # whose sitemaps this worker knows to be stored


class _Stopping(Exception):
    """The worker has to end before something could be stored."""


class FoundPipeline:
    """Stores the links of a page that are in scope, and its images, then makes its event.

    The lease keeper emits the event. The images go to the frontier of the spider `images`. No links are followed
    from a page that says `nofollow`, nor from one that shows what was last seen under another address of its
    domain. Of a page that forbids to be kept there is no event, and none of its images is fetched: it is a dead
    letter, as a picture that forbids it is.

    With the first page of a host go the sitemaps that its robots.txt names: requests of the spider as its links
    are, each of which the seen filter lets pass once. The pages that they name are stored as links of that page.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.settings = config.load(crawler.settings)
        self.year = datetime.now(UTC).year
        self._with_sitemaps: set[tuple[str, str]] = set()  # robots.txt, scope

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the pipeline of `crawler`."""
        return cls(crawler)

    def open_spider(self) -> None:
        """Find the frontiers of this spider and of `images`."""
        self.worker = worker_of(self.crawler)
        state, most = self.worker.state, self.settings.pages_budget_max
        bounds = state.bounds
        self.links = Discovery(state.scripts, bounds)
        # Pages are within a budget, and so are their images: no other one but the bound of all budgets, of which
        # links of their priority take a quarter.
        whole = Budget(base=4 * most, most=4 * most) if most else None
        # They lead to any host, and perhaps nobody crawls them: half of the frontier is left to seeds.
        half = bounds.high_water // 2
        self.images = Discovery(state.beside(_IMAGES).scripts, bounds, most_outstanding=half, budget=whole)

    async def process_item(self, item: Any) -> Any:
        """Return the event of a page, or a failure; other items as they are."""
        if isinstance(item, FetchedSitemap):
            return await self._read(item)
        if not isinstance(item, FetchedPage):
            return item
        if item.response.status == 304:
            event = _event_of(item, None)
            return ReadPage(event, 304, {"pages": 1, **_unchanged(event.revisit)}, look=item.look)
        page = item.page
        assert page is not None, "ITEM_PIPELINES must have the page pipeline before this one"
        decided: Counter[str] = Counter()
        links = list(self._links_of(item, page, decided))
        try:
            is_new = page.digest is None or await self._lasting(lambda: self._is_new(item, page))
            if is_new:
                await self._admit(item, self.links, iter(links), decided)
            if not item.refused:
                await self._admit(item, self.images, self._images_of(item, page.images, item.fetch.final_url))
            await self._admit_sitemaps(item, decided)
        except _Stopping:
            return Failure(STOPPED, "the worker stops and stores no more links")
        if item.refused:
            reason = f"opt-out: {', '.join(item.refused)}"
            return Failure(KEPT_BACK, reason, status=200)
        event = _event_of(item, page, len(links))
        good = int(is_new and event.revisit != UNCHANGED)
        counts = {"pages": 1, "good_pages": good, "bytes": len(item.body), **decided, **_unchanged(event.revisit)}
        return ReadPage(event, event.status, counts, item.parse_s, item.look)

    def _links_of(self, item: FetchedPage, page: Page, decided: Counter[str]) -> Iterator[Link]:
        """Yield the links to pages that are in scope and no traps, with what is stored of their seed.

        Traps are counted in `decided`.
        """
        if not self._leads_on(item):
            return
        scope, depth, meta = self._scope_of(item), item.depth + 1, dict[str, Any]()
        if item.scope is not None:
            meta[SCOPE] = item.scope
        if item.most_depth is not None:
            meta[MOST_DEPTH] = item.most_depth
        for link in page.links:
            if (priority := self._worth(link.url, depth, scope, decided, nofollow=link.nofollow)) is not None:
                yield Link(link.url, priority, depth, source=_source_of(item, link.url), meta=meta)

    def _worth(
        self, url: str, depth: int, scope: Scope, decided: Counter[str], *, nofollow: bool = False
    ) -> int | None:
        """Return the priority of a link; None if it is out of scope, or a trap, which is counted in `decided`."""
        if not scope.has(url):
            return None
        worth, reason = judge(url, depth, nofollow=nofollow, year=self.year)
        if worth is Worth.REFUSED:
            self.crawler.stats.inc_value(f"links/refused/{reason}")
            decided["links_refused"] += 1
            return None
        return POOR if worth is Worth.POOR else FOUND_PRIORITY

    def _leads_on(self, item: FetchedPage) -> bool:
        """Tell whether there may be pages one link farther away from the seed."""
        return item.depth < (DEEPEST if item.most_depth is None else item.most_depth)

    def _scope_of(self, item: FetchedPage | FetchedSitemap) -> Scope:
        """Return the scope of a page's seed; without one of its own that is the domain of each of its pages."""
        if item.scope is not None:
            with suppress(ValueError):  # not written by crawlproject
                return Scope.parse(item.scope)
        return Scope.of_seed(item.url)

    def _images_of(
        self, item: FetchedPage | FetchedSitemap, images: Iterable[FoundImage], found_on: str
    ) -> Iterator[Link]:
        """Yield those of a page's images that are wanted, with what is said of each."""
        wanted = self.settings.pages_images
        for image in images if wanted != "none" else ():
            licence = image.licence
            if wanted == "licensed" and (licence is None or not licence.is_open):
                continue
            told = {
                "found_on": found_on,
                "licence": licence and licence.url,
                "alt": image.alt,
                "title": image.title,
                "creator": image.creator,
            }
            identifier = str(uuid.uuid5(uuid.NAMESPACE_URL, image.url))
            meta = {FOUND: {name: text for name, text in told.items() if text}}
            # The lowest priority: seeds of that spider have it, too, unless they say another, and go first.
            yield Link(image.url, POOR, identifier=identifier, source=_source_of(item, image.url), meta=meta)

    # Sitemaps

    async def _admit_sitemaps(self, item: FetchedPage, decided: Counter[str]) -> None:
        """Store the sitemaps that the robots.txt of a page's host names, once for each scope."""
        url, request, scope = item.response.url, item.response.request, self._scope_of(item)
        if request is None or not self._leads_on(item) or not scope.has(url):
            return
        host = (robots_url(url), scope.text)
        if host in self._with_sitemaps and item.before is None:
            return
        named = await self.worker.robots.sitemaps(url, request.meta[LEASE].source)
        domain = domain_of_url(url)
        own = [one for one in named if domain_of_url(one) == domain]
        elsewhere = [one for one in named if domain_of_url(one) != domain][:_MOST_ELSEWHERE]
        links = sitemap_links(item, own + elsewhere, scope, item.depth + 1, 0, MOST_SITEMAPS)
        await self._admit_named(item, links, len(named), decided)
        if len(self._with_sitemaps) >= _MOST_HOSTS:
            self._with_sitemaps.clear()
        self._with_sitemaps.add(host)

    async def _admit_named(
        self, item: FetchedPage | FetchedSitemap, links: list[Link], named: int, decided: Counter[str]
    ) -> None:
        """Store sitemaps, within the bound of the source that leads there; count those of `named` left out."""
        if named > len(links):
            decided[_LEFT_OUT] += named - len(links)
        await self._admit(item, self.links, iter(links), decided, sitemaps=(item.source, MOST_SITEMAPS))

    async def _read(self, item: FetchedSitemap) -> ReadPage | Failure:
        """Store what a sitemap names, within its scope: pages and their images, or the sitemaps of an index."""
        if item.response.status == 304:
            return ReadPage(None, 304, _unchanged(UNCHANGED), look=item.look)
        found = item.sitemap
        assert found is not None, "ITEM_PIPELINES must have the sitemap pipeline before this one"
        rules, scope = rules_of(item.response.headers, (), datetime.now(UTC)), self._scope_of(item)
        decided: Counter[str] = Counter()
        look = item.look
        try:
            if not rules.nofollow:
                await self._admit_near(item, found, scope, decided)
                listed = self._listed_in(item, found, scope, decided)
                all_stored = await self._admit(item, self.links, listed, decided)
                if look is not None and not all_stored:  # they are found again, unless the site says 304
                    look = look._replace(etag="", modified="")
            if not rules.nofollow and not rules.noimages:
                await self._admit(item, self.images, self._images_in(item, found, scope))
        except _Stopping:
            return Failure(STOPPED, "the worker stops and stores no more links")
        revisit = look and revisits.found(item.before, look.digest)
        return ReadPage(None, counts={"sitemaps": 1, **decided, **_unchanged(revisit)}, look=look)

    async def _admit_near(self, item: FetchedSitemap, found: Sitemap, scope: Scope, decided: Counter[str]) -> None:
        """Store the sitemaps of an index that are of its domain or in scope."""
        domain = domain_of_url(item.url)
        near = (one.url for one in found.sitemaps if domain_of_url(one.url) == domain or scope.has(one.url))
        most = item.sitemaps if item.indexes < INDEX_DEPTH else 0
        links = sitemap_links(item, near, scope, item.depth, item.indexes + 1, most)
        await self._admit_named(item, links, len(found.sitemaps), decided)

    def _listed_in(
        self, item: FetchedSitemap, found: Sitemap, scope: Scope, decided: Counter[str]
    ) -> Iterator[Link]:
        """Yield the pages of a sitemap; traps are counted in `decided`."""
        meta: dict[str, Any] = {} if item.most_depth is None else {MOST_DEPTH: item.most_depth}
        if scope.kind != DEFAULT:
            meta[SCOPE] = scope.text
        for page in found.pages:
            if self._worth(page.url, item.depth, scope, decided) is not None:
                yield Link(page.url, LISTED, item.depth, source=_source_of(item, page.url), meta=meta)

    def _images_in(self, item: FetchedSitemap, found: Sitemap, scope: Scope) -> Iterator[Link]:
        """Yield the images of the pages of a sitemap that are wanted."""
        for page in found.pages:
            if page.images and scope.has(page.url):
                yield from self._images_of(item, page.images, page.url)

    async def _admit(
        self,
        item: FetchedPage | FetchedSitemap,
        frontier: Discovery,
        links: Iterator[Link],
        decided: Counter[str] | None = None,
        sitemaps: tuple[str, int] | None = None,
    ) -> bool:
        """Admit the links of an item, letting others have their turn; count in `decided` those settled here.

        False: some found no room, or were over the budget, or may be where they arrive, and might be admitted
        later. `sitemaps` is as in `Discovery.admit`.

        Raises:
            _Stopping: the shutdown grace is over.

        """
        all_stored = True
        while part := list(islice(links, LINKS_A_CALL)):
            found = await self._admitted(frontier, part, sitemaps)
            if found.forwarded:
                self.crawler.stats.inc_value("links/forwarded", found.forwarded)
            all_stored = all_stored and not found.over_budget + found.without_room + found.forwarded
            if decided is not None:
                for name, number in found.uncounted.items():
                    decided[_LEFT_OUT if name == "left_out" else f"links_{name}"] += number
            await asyncio.sleep(0)
        return all_stored

    async def _admitted(
        self, frontier: Discovery, links: list[Link], sitemaps: tuple[str, int] | None
    ) -> Discovered:
        """Admit links, however long it takes until there is a frontier to take them.

        Raises:
            _Stopping: the shutdown grace is over.

        """
        while True:
            found = await self._lasting(lambda: frontier.admit(links, sitemaps=sitemaps))
            if found is not None:
                return found
            await self._pause()

    async def _is_new(self, item: FetchedPage, page: Page) -> bool:
        """Tell whether what a page shows is new to its domain, or was last seen under this address."""
        text = hashlib.blake2b(f"{domain_of_url(item.url)}\n{page.digest}".encode(), digest_size=9).digest()
        address = hashlib.blake2b(item.url.encode(), digest_size=5).digest()
        state = self.worker.state
        return await state.scripts.note_text(text, address, places=max(_TEXTS // state.count, 1))

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


def sitemap_links(
    item: FetchedPage | FetchedSitemap, urls: Iterable[str], scope: Scope, depth: int, indexes: int, most: int
) -> list[Link]:
    """Return the first `most` sitemaps, among which what is left of that number is shared out.

    So a robots.txt leads to no more, however its indexes are nested, and none of them takes what others need.
    """
    chosen = list(islice(urls, most))
    each = (most - len(chosen)) // max(len(chosen), 1)
    meta: dict[str, Any] = {SITEMAP: [indexes, each], SCOPE: scope.text}
    if item.most_depth is not None:
        meta[MOST_DEPTH] = item.most_depth
    return [Link(url, LISTED, depth, source=_source_of(item, url), meta=meta) for url in chosen]


def _event_of(item: FetchedPage, page: Page | None, links: int = 0) -> PageEvent:
    """Return the event of a page; with None for `page`, of one that has not changed and was not read."""
    read: dict[str, Any] = {"title": None, "language": None, "licence": None, "images": 0}
    digest = item.before.digest if item.before else ""
    if page is not None:
        digest = page.digest or ""
        licence = page.licence and page.licence.url
        read = {"title": page.title, "language": page.language, "licence": licence, "images": len(page.images)}
    return PageEvent(
        url=item.url,
        source=item.source,
        status=item.response.status,
        **asdict(item.fetch),
        digest=digest or None,
        links=links,
        depth=item.depth,
        fetched_at=item.fetched_at,
        record=item.warc,
        extra=item.extra,
        revisit=revisits.found(item.before, digest),
        **read,
    )


def _unchanged(revisit: str | None) -> dict[str, int]:
    return {"revisits_unchanged": 1} if revisit == UNCHANGED else {}


def _source_of(item: FetchedPage | FetchedSitemap, link: str) -> str | None:
    """Return the source named for a link: that of its page or sitemap, if that is of its domain and not it."""
    domain = domain_of_url(link)
    return item.source if item.source != domain and domain == domain_of_url(item.url) else None
