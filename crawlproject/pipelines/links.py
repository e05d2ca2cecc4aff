"""Stores what pages and sitemaps lead to; then a page has its event."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Self

from scrapy.crawler import Crawler
from scrapy.utils.datatypes import LocalCache

from crawlproject import config
from crawlproject.frontier.discovery import LISTED, PLAIN, POOR, Discovered, Discovery, Link, NoCatalogue
from crawlproject.frontier.scheduler import scheduler_of
from crawlproject.models import FOUND, LEASE, MOST_DEPTH, SCOPE, SITEMAP, MediaEvent, PageEvent
from crawlproject.pages.images import FoundImage
from crawlproject.pages.items import Fetched, FetchedPage, FetchedSitemap, ReadPage
from crawlproject.pages.links import outlinks
from crawlproject.pages.page import Page
from crawlproject.pages.revisits import UNCHANGED, verdict
from crawlproject.pages.rules import rules_of
from crawlproject.pages.scope import DEFAULT, Scope
from crawlproject.pages.sitemaps import INDEX_DEPTH, MOST_SITEMAPS
from crawlproject.pages.traps import DEEPEST, judge
from crawlproject.politeness.outcomes import KEPT_BACK, STORAGE_UNAVAILABLE, Failure
from crawlproject.politeness.robots_txt import robots_url
from crawlproject.sources.domains import domain_of_url
from crawlproject.state.calls import Budget, Sitemaps, Text
from crawlproject.state.client import REDIS_TROUBLE

_IMAGES = "images"  # the spider that gets the images
_MOST_ELSEWHERE = 8  # sitemaps on other domains than the robots.txt that names them
_LEFT_OUT = "sitemaps_left_out"  # count: sitemaps that were named and are not fetched
_TEXTS = 4_194_304  # pages whose text is remembered in all, 9 bytes each
_MOST_HOSTS = 50_000  # whose sitemaps this worker knows to be stored


class LinksPipeline:
    """Stores the links of a page that are in scope, and its images, then makes its event.

    The lease keeper emits the event. The images go to the frontier of the spider `images`. No links are followed
    from a page that says `nofollow`, nor from one that shows what was last seen under another address of its
    domain. Of a page that forbids to be kept there is no event, and none of its images is fetched: it is a dead
    letter, as a picture that forbids it is. Where its links cannot be
    stored at the moment, it goes back to the frontier, uncounted.

    With the first page of a host go the sitemaps that its robots.txt names: requests of the spider as its links
    are, each of which the seen filter lets pass once. The pages that they name are stored as links of that page.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.settings = config.load(crawler.settings)
        self.year = datetime.now(UTC).year
        self._with_sitemaps = LocalCache[tuple[str, str], bool](_MOST_HOSTS)  # by robots.txt and scope

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the pipeline of `crawler`."""
        return cls(crawler)

    def open_spider(self) -> None:
        """Find the frontiers of this spider and of `images`."""
        self.scheduler = scheduler_of(self.crawler)
        state, most = self.scheduler.state, self.settings.pages_budget_max
        bounds = state.bounds
        self.links = Discovery(state.scripts, bounds)
        # Pages are within a budget, and so are their images: no other one but the bound of all budgets, of which
        # links of their priority take a quarter.
        whole = Budget(base=4 * most, most=4 * most) if most else None
        # They lead to any host, and perhaps nobody crawls them: half of the frontier is left to seeds.
        half = bounds.high_water // 2
        self.images = Discovery(state.beside(_IMAGES).scripts, bounds, most_outstanding=half, budget=whole)

    async def process_item(self, item: Any) -> Any:
        """Return what a page or a sitemap has come to; other items as they are."""
        if not isinstance(item, Fetched):
            return item
        if item.response.status == 304:
            counts = {"revisits_unchanged": 1}
            event = _event_of(item, None) if isinstance(item, FetchedPage) else None
            return ReadPage(event, 304, counts if event is None else {"pages": 1, **counts}, look=item.look)
        try:
            return await (self._page(item) if isinstance(item, FetchedPage) else self._sitemap(item))
        except REDIS_TROUBLE as error:
            self.scheduler.state.failed(error)
        except NoCatalogue:
            pass
        return Failure(
            STORAGE_UNAVAILABLE, "what it leads to cannot be stored: Redis fails, or no worker leads yet"
        )

    async def _page(self, item: FetchedPage) -> ReadPage | Failure:
        page = item.page
        assert page is not None, "ITEM_PIPELINES must have the page pipeline before this one"
        counts: Counter[str] = Counter()
        links = list(self._links_of(item, page, counts))
        is_new = (await self._admit(self.links, links, counts, text=self._text_of(item, page))).is_new
        if not item.refused:
            await self._admit(self.images, self._images_of(item, page.images, item.final_url))
        await self._admit_sitemaps(item, counts)
        if item.refused:
            return Failure(KEPT_BACK, f"opt-out: {', '.join(item.refused)}", status=200)
        event = _event_of(item, page, len(links), with_outlinks=self.settings.pages_links == "event")
        good = int(is_new and event.revisit != UNCHANGED)
        counts.update(
            pages=1, good_pages=good, bytes=len(item.body), revisits_unchanged=int(event.revisit == UNCHANGED)
        )
        media = _media_of(item, page) if event.revisit != UNCHANGED else ()
        return ReadPage(event, event.status, +counts, item.parse_s, item.look, media)

    def _links_of(self, item: FetchedPage, page: Page, counts: Counter[str]) -> Iterator[Link]:
        """Yield the links to pages that are in scope and no traps, with what is stored of their seed."""
        if self._leads_on(item):
            scope, meta = self._scope_of(item), _of_seed(item, item.scope)
            for link in page.links:
                yield from self._link(item, link.url, item.depth + 1, scope, counts, meta, nofollow=link.nofollow)

    def _link(
        self,
        item: Fetched,
        url: str,
        depth: int,
        scope: Scope,
        counts: Counter[str],
        meta: dict[str, Any],
        *,
        nofollow: bool = False,
        priority: int | None = None,
    ) -> Iterator[Link]:
        """Yield a link to a page if it is in scope, and no trap; these are counted."""
        if not scope.has(url):
            return
        worth, reason = judge(url, depth, nofollow=nofollow, year=self.year)
        if worth == "refused":
            self.crawler.stats.inc_value(f"links/refused/{reason}")
            counts["links_refused"] += 1
            return
        if priority is None:
            priority = POOR if worth == "poor" else PLAIN
        source = _source_of(item, url)
        yield Link(url, priority, depth, source=source, meta=meta, found_on=item.final_url)

    def _leads_on(self, item: Fetched) -> bool:
        """Tell whether there may be pages one link farther away from the seed."""
        return item.depth < (DEEPEST if item.most_depth is None else item.most_depth)

    def _scope_of(self, item: Fetched) -> Scope:
        """Return the scope of a page's seed; without one of its own that is the domain of each of its pages."""
        return Scope.of_seed(item.url) if item.scope is None else Scope.parse(item.scope)

    def _images_of(self, item: Fetched, images: Iterable[FoundImage], found_on: str) -> Iterator[Link]:
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

    async def _admit_sitemaps(self, item: FetchedPage, counts: Counter[str]) -> None:
        """Store the sitemaps that the robots.txt of a page's host names, once for each scope."""
        url, request, scope = item.response.url, item.response.request, self._scope_of(item)
        if request is None or not self._leads_on(item) or not scope.has(url):
            return
        host = (robots_url(url), scope.text)
        if host in self._with_sitemaps and item.before is None:
            return
        named = await self.scheduler.robots.sitemaps(url, request.meta[LEASE].source)
        domain = domain_of_url(url)
        own = [one for one in named if domain_of_url(one) == domain]
        elsewhere = [one for one in named if domain_of_url(one) != domain][:_MOST_ELSEWHERE]
        await self._admit_named(item, own + elsewhere, scope, item.depth + 1, 0, counts, len(named))
        self._with_sitemaps[host] = True

    async def _admit_named(
        self,
        item: Fetched,
        urls: list[str],
        scope: Scope,
        depth: int,
        indexes: int,
        counts: Counter[str],
        named: int,
    ) -> None:
        """Store sitemaps, within the bound of the source that leads there; count those of `named` left out."""
        chosen = urls[:MOST_SITEMAPS] if indexes <= INDEX_DEPTH else []
        meta = {SITEMAP: indexes, **_of_seed(item, scope.text)}
        links = (Link(url, LISTED, depth, source=_source_of(item, url), meta=meta) for url in chosen)
        counts[_LEFT_OUT] += named - len(chosen)
        await self._admit(self.links, links, counts, sitemaps=Sitemaps(item.source, MOST_SITEMAPS))

    async def _sitemap(self, item: Fetched) -> ReadPage:
        """Store what a sitemap names, within its scope: pages and their images, or the sitemaps of an index."""
        assert isinstance(item, FetchedSitemap)
        sitemap, look = item.sitemap, item.look
        assert sitemap is not None, "ITEM_PIPELINES must have the page pipeline before this one"
        rules, scope = rules_of(item.response.headers, (), datetime.now(UTC)), self._scope_of(item)
        counts: Counter[str] = Counter(sitemaps=1)
        if not rules.nofollow:
            domain = domain_of_url(item.url)
            near = [url for url in sitemap.sitemaps if domain_of_url(url) == domain or scope.has(url)]
            indexes = item.indexes + 1
            await self._admit_named(item, near, scope, item.depth, indexes, counts, len(sitemap.sitemaps))
            meta = _of_seed(item, scope.text if scope.kind != DEFAULT else None)
            listed = (
                link
                for page in sitemap.pages
                for link in self._link(item, page.url, item.depth, scope, counts, meta, priority=LISTED)
            )
            found = await self._admit(self.links, listed, counts)
            if look is not None and not found.are_all_stored:  # they are found again, unless the site says 304
                look = look._replace(etag="", modified="")
        if not rules.nofollow and not rules.noimages:
            with_images = (page for page in sitemap.pages if page.images and scope.has(page.url))
            images = (link for page in with_images for link in self._images_of(item, page.images, page.url))
            await self._admit(self.images, images)
        if look is not None and verdict(item.before, look.digest) == UNCHANGED:
            counts["revisits_unchanged"] = 1
        return ReadPage(None, counts=+counts, look=look)

    async def _admit(
        self, frontier: Discovery, links: Iterable[Link], counts: Counter[str] | None = None, **more: Any
    ) -> Discovered:
        """Admit links (see `Discovery.admit`), and count in `counts` those settled here."""
        found = await frontier.admit(links, **more)
        if found["forwarded"]:
            self.crawler.stats.inc_value("links/forwarded", found["forwarded"])
        if counts is not None:
            for name, number in found.uncounted.items():
                counts[_LEFT_OUT if name == "left_out" else f"links_{name}"] += number
        return found

    def _text_of(self, item: FetchedPage, page: Page) -> Text | None:
        """Return what tells whether a page shows what was last seen under another address of its domain."""
        if page.digest is None:
            return None
        digest = hashlib.blake2b(f"{domain_of_url(item.url)}\n{page.digest}".encode(), digest_size=9).digest()
        address = hashlib.blake2b(item.url.encode(), digest_size=5).digest()
        return Text.of(digest, address, max(_TEXTS // self.scheduler.state.count, 1))


def _of_seed(item: Fetched, scope: str | None) -> dict[str, Any]:
    """Return what is stored with a link: how far links are followed, where its seed says that."""
    told = {SCOPE: scope, MOST_DEPTH: item.most_depth}
    return {name: value for name, value in told.items() if value is not None}


def _event_of(item: FetchedPage, page: Page | None, links: int = 0, *, with_outlinks: bool = False) -> PageEvent:
    """Return the event of a page; with None for `page`, of one that has not changed and was not read."""
    read: dict[str, Any] = {"title": None, "language": None, "licence": None, "images": 0}
    digest = item.before.digest if item.before else ""
    if page is not None:
        digest = page.digest or ""
        licence = page.licence and page.licence.url
        read = {"title": page.title, "language": page.language, "licence": licence, "images": len(page.images)}
        read |= {"outlinks": outlinks(page.links)} if with_outlinks else {}
    return PageEvent(
        url=item.url,
        source=item.source,
        status=item.response.status,
        statuses=item.statuses,
        **item.fetch._asdict(),
        content_type=item.content_type,
        size=len(item.body),
        wire_size=len(item.response.body),
        digest=digest or None,
        links=links,
        depth=item.depth,
        fetched_at=item.fetched_at,
        record=item.warc,
        extra=item.extra,
        revisit=verdict(item.before, digest),
        **item.found,
        **read,
    )


def _media_of(item: FetchedPage, page: Page) -> tuple[MediaEvent, ...]:
    """Return what a page embeds and is reported of it, at the time of its event."""
    return tuple(
        MediaEvent(
            url=one.url,
            source=item.source,
            type=one.kind,
            licence=one.licence.url,
            found_on=item.final_url,
            time=item.fetched_at,
            content_type=one.content_type,
            title=one.title,
            creator=one.creator,
        )
        for one in page.media
    )


def _source_of(item: Fetched, link: str) -> str | None:
    """Return the source named for a link: that of its page or sitemap, if that is of its domain and not it."""
    domain = domain_of_url(link)
    return item.source if item.source != domain and domain == domain_of_url(item.url) else None
