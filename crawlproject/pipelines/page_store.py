"""Keeps pages in the content store (storage/warc_store.py)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Self

from itemadapter import ItemAdapter
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from twisted.web.http import RESPONSES

from crawlproject import config
from crawlproject.errors import StorageDown
from crawlproject.models import HEADS
from crawlproject.net.connections import Heads
from crawlproject.politeness.outcomes import STORAGE_UNAVAILABLE, Failure
from crawlproject.storage.warc import Earlier, Exchange, head
from crawlproject.storage.warc_store import PageStore


class PageStorePipeline:
    """Keeps what an item has in its field `exchange`, and puts where into its field `warc`.

    `warc` becomes a dict of `warc`, `offset` and `length` (storage/warc.py, Place), `exchange` None. Only for
    spiders with `keeps_exchanges = True`, and only if `CRAWL_PAGES_STORE` is set: else `warc` stays as it is.
    While the store is down, the item becomes a failure that hands its page back to the frontier, uncounted.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.config = config.load(crawler.settings)
        self.store: PageStore | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the pipeline."""
        return cls(crawler)

    def open_spider(self) -> None:
        """Open the store, if this spider's pages are kept."""
        if self.config.pages_store is not None and getattr(self.crawler.spider, "keeps_exchanges", False):
            self.store = PageStore(self.crawler.settings, self.crawler)
            self.store.open()

    async def close_spider(self) -> None:
        """Close the store."""
        if self.store is not None:
            await self.store.close(self.config.shutdown_grace)

    async def process_item(self, item: Any) -> Any:
        """Return the item with its place once that is on the disk, or a failure; other items as they are."""
        if not ItemAdapter.is_item(item):
            return item
        fields = ItemAdapter(item)
        exchange = fields.get("exchange")
        if not isinstance(exchange, Exchange):
            return item
        fields["exchange"] = None
        if self.store is None:
            return item
        try:
            place = await self.store.write(exchange)
        except StorageDown as error:
            return Failure(STORAGE_UNAVAILABLE, str(error))
        fields["warc"] = place._asdict()
        return item


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
