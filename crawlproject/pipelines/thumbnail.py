"""Looks at the picture once, in a thread: its facts, its thumbnail, and the thumbnail's way into the store."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from scrapy.crawler import Crawler

from crawlproject import config
from crawlproject.errors import StoreDown, UnreadableImage
from crawlproject.imaging.analyse import analyse
from crawlproject.pipelines.store_circuit import StoreCircuit
from crawlproject.pipelines.stores import ThumbnailStore, open_store, thumbnail_name
from crawlproject.records import Failure, FetchedImage, Unstored

logger = logging.getLogger(__name__)


class ThumbnailPipeline:
    """Turns the body of a `FetchedImage` into facts and a stored thumbnail.

    One thread opens the picture and decodes it once. A picture that cannot be read goes on as a `Failure`; while
    the store is down, one that was read as `Unstored`. Trouble with the thumbnail alone is raised; neither costs
    the source anything.
    """

    def __init__(self, settings: config.Config, store: ThumbnailStore, crawler: Crawler | None = None) -> None:
        self.settings = settings
        self.store = StoreCircuit(store, crawler)
        self.threads = ThreadPoolExecutor(settings.decode_threads, thread_name_prefix="decode")

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the pipeline with the store that `IMAGES_STORE` names."""
        settings = config.load(crawler.settings)
        return cls(settings, open_store(settings.images_store, crawler.settings), crawler)

    def close_spider(self) -> None:
        """End the threads; nothing is left for them to do by now."""
        self.threads.shutdown()
        self.store.close()

    async def process_item(self, item: Any) -> Any:
        """Return a `FetchedImage` with facts and thumbnail for its body, or what it came to; other items as is."""
        if not isinstance(item, FetchedImage):
            return item
        try:
            thumbnail = await asyncio.get_running_loop().run_in_executor(self.threads, self._look, item)
        except UnreadableImage as error:
            return Failure(
                item.identifier, item.url, item.source, kind="unreadable", reason=str(error), status=200
            )
        name = thumbnail_name(item.identifier)
        try:
            await self.store.write(name, thumbnail)
        except StoreDown as error:
            return Unstored(item.identifier, item.url, item.source, str(error))
        item.thumbnail = name
        return item

    def _look(self, item: FetchedImage) -> bytes:
        analysis = analyse(item.body, max_pixels=self.settings.max_pixels, quality=self.settings.thumbnail_quality)
        item.body = b""
        item.facts = analysis.facts
        return analysis.thumbnail
