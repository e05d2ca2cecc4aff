"""Keeps pages in the content store (store.py)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self

from itemadapter import ItemAdapter
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from twisted.web.http import RESPONSES

from crawlproject import config
from crawlproject.contrib.warc.plugin import WarcSettings
from crawlproject.contrib.warc.records import Earlier, Exchange, head, payload_digest, warc_fields
from crawlproject.contrib.warc.store import PageStore
from crawlproject.errors import StorageDown
from crawlproject.models import HEADS, Event
from crawlproject.net.connections import Heads
from crawlproject.pages.items import FetchedPage
from crawlproject.pages.links import Link, outlinks
from crawlproject.pages.page import MAX_BYTES
from crawlproject.pages.revisits import Look
from crawlproject.politeness.outcomes import STORAGE_UNAVAILABLE, Failure
from crawlproject.spiders.pages import PagesSpider
from crawlproject.texts import one_line


class PageStorePipeline:
    """Keeps the pages of the spider `pages`, and of others what an item has in its field `exchange`.

    Where it is goes into the item's `warc`, as a dict of `warc`, `offset` and `length` (records.py, Place), and
    `exchange` becomes None. Only for spiders with `keeps_exchanges = True`, and only if `CRAWL_PAGES_STORE` is
    set: else `warc` stays as it is. While the store is down, the item becomes a failure that hands its page back
    to the frontier, uncounted.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.store: PageStore | None = None
        self.with_links = config.load(crawler.settings).pages_links == "warc"

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the pipeline."""
        return cls(crawler)

    def open_spider(self) -> None:
        """Open the store, if this spider's pages are kept."""
        spider = self.crawler.spider
        if config.read(WarcSettings, self.crawler.settings).store is None:
            return
        if isinstance(spider, PagesSpider):
            spider.keeps_exchanges = True
        if getattr(spider, "keeps_exchanges", False):
            self.store = PageStore(self.crawler.settings, self.crawler)
            self.store.open()

    async def close_spider(self) -> None:
        """Close the store."""
        if self.store is not None:
            await self.store.close(self.store.config.shutdown_grace)

    async def process_item(self, item: Any) -> Any:
        """Return the item with its place once that is on the disk, or a failure; other items as they are."""
        if isinstance(item, Event) or not ItemAdapter.is_item(item):
            return item
        fields = ItemAdapter(item)
        if isinstance(item, FetchedPage):
            exchange = exchange_of_page(item) if self.store is not None else None
            if exchange is not None and item.page is not None and self.with_links:
                exchange = replace(exchange, metadata=links_as_fields(item.page.links))
        elif isinstance(exchange := fields.get("exchange"), Exchange):
            fields["exchange"] = None
        if self.store is None or not isinstance(exchange, Exchange):
            return item
        try:
            place = await self.store.write(exchange)
        except StorageDown as error:
            return Failure(STORAGE_UNAVAILABLE, str(error))
        fields["warc"] = place._asdict()
        if isinstance(item, FetchedPage) and item.look is not None:
            item.look = kept_look(item, item.look, exchange)
        return item


def exchange_of_page(item: FetchedPage) -> Exchange | None:
    """Return what is kept of a page; None if it may not be, or if nothing came of one that has no record yet."""
    response, earlier = item.response, _kept_before(item)
    fetched_at = datetime.fromisoformat(item.fetched_at)
    if response.status == 304:
        if earlier is None:
            return None
        return exchange_of(response, b"", fetched_at=fetched_at, earlier=earlier, not_modified=True)
    if item.refused:
        return None
    is_cut = "download_stopped" in response.flags or len(item.body) >= MAX_BYTES
    return exchange_of(response, item.body, fetched_at=fetched_at, truncated=is_cut, earlier=earlier)


def links_as_fields(links: Iterable[Link]) -> bytes:
    """Return a field `outlink` for each link: its address, as in files of Heritrix, then text and rel as JSON."""
    return warc_fields(
        ("outlink", f"{one['url']} {one_line({'text': one['text'], 'rel': one['rel']})}")
        for one in outlinks(links)
    )


def kept_look(item: FetchedPage, look: Look, kept: Exchange) -> Look:
    """Return what is known of a page that is to be looked at again, with the record that has its body."""
    if kept.not_modified:
        return look
    sha1 = "" if kept.truncated else payload_digest(kept.body)
    is_equal = kept.earlier is not None and sha1 != "" and kept.earlier.sha1 == sha1
    kept_at = item.before.kept_at if item.before and is_equal else item.fetched_at
    return look._replace(kept_at=kept_at, sha1=sha1)


def _kept_before(item: FetchedPage) -> Earlier | None:
    """Return the record in the store of the same address, as it was when it was looked at before."""
    before = item.before
    if before is None or not before.kept_at or before.url != item.response.url:
        return None
    return Earlier(datetime.fromisoformat(before.kept_at), before.sha1)


def exchange_of(
    response: Response,
    body: bytes | None = None,
    *,
    fetched_at: datetime | None = None,
    truncated: bool = False,
    earlier: Earlier | None = None,
    not_modified: bool = False,
) -> Exchange:
    """Return what is kept of a response and its request: with the heads as they went over the wire, if at hand.

    `body` is the part of the decoded body that is kept, all of it by default; `truncated`: it was cut off.
    `earlier` and `not_modified` are as in `Exchange`.
    """
    request = response.request
    assert request is not None
    heads = request.meta.get(HEADS)
    if not isinstance(heads, Heads):
        heads = Heads()
    line = f"{response.protocol or 'HTTP/1.1'} {response.status} ".encode() + RESPONSES.get(response.status, b"")
    return Exchange(
        url=response.url,
        fetched_at=fetched_at or datetime.now(UTC),
        request_head=heads.request or _head_of(request),
        response_head=heads.response or head(line, _flat(response.headers)),
        body=response.body if body is None else body,
        request_body=request.body,
        ip=heads.ip or str(response.ip_address or ""),
        truncated=truncated,
        earlier=earlier,
        not_modified=not_modified,
    )


def _head_of(request: Request) -> bytes:
    _, _, rest = request.url.partition("://")
    host, slash, path = rest.partition("/")
    line = f"{request.method} {slash or '/'}{path.partition('#')[0]} HTTP/1.1".encode()
    return head(line, [(b"Host", host.encode()), *_flat(request.headers)])


def _flat(headers: Any) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, values in headers.items() for value in values]
