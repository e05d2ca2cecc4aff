"""Looks at the picture once, in a process beside: its facts, its thumbnail, and that one's way into the store."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from scrapy.crawler import Crawler

from crawlproject import config
from crawlproject.errors import StoreDown
from crawlproject.imaging.decoders import Decoders, Job
from crawlproject.imaging.errors import TooLargeImage, UnreadableImage
from crawlproject.pipelines.store_circuit import StoreCircuit
from crawlproject.pipelines.stores import ThumbnailStore, open_store, thumbnail_name
from crawlproject.records import Failure, FetchedImage, Unstored

logger = logging.getLogger(__name__)


class ThumbnailPipeline:
    """Turns the body of a `FetchedImage` into facts and a stored thumbnail.

    A decoder process opens the picture and decodes it once. A picture that cannot be read, or that its decoder
    does not survive, goes on as a `Failure`; while the store is down, one that was read as `Unstored`. Trouble
    with the thumbnail alone is raised; neither costs the source anything.
    """

    def __init__(self, settings: config.Config, store: ThumbnailStore, crawler: Crawler | None = None) -> None:
        self.settings = settings
        self.store = StoreCircuit(store, crawler)
        self.threads = ThreadPoolExecutor(settings.decode_processes, thread_name_prefix="decode")
        self.decoders = Decoders(
            settings.decode_processes,
            Job(
                max_pixels=settings.max_pixels,
                max_size=settings.download_maxsize,
                quality=settings.thumbnail_quality,
                timeout=settings.decode_timeout,
            ),
        )

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the pipeline with the store that `IMAGES_STORE` names."""
        settings = config.load(crawler.settings)
        return cls(settings, open_store(settings.images_store, crawler.settings), crawler)

    def close_spider(self) -> None:
        """End threads and processes; nothing is left for them to do by now."""
        self.threads.shutdown()
        self.decoders.close()
        self.store.close()

    async def process_item(self, item: Any) -> Any:
        """Return a `FetchedImage` with facts and thumbnail for its body, or what it came to; other items as is."""
        if not isinstance(item, FetchedImage):
            return item
        try:
            thumbnail = await asyncio.get_running_loop().run_in_executor(self.threads, self._look, item)
        except UnreadableImage as error:
            kind = "too_large" if isinstance(error, TooLargeImage) else "unreadable"
            return Failure(item.identifier, item.url, item.source, kind=kind, reason=str(error), status=200)
        name = thumbnail_name(item.identifier)
        try:
            await self.store.write(name, thumbnail)
        except StoreDown as error:
            return Unstored(item.identifier, item.url, item.source, str(error))
        item.thumbnail = name
        return item

    def _look(self, item: FetchedImage) -> bytes:
        analysis = self.decoders.analyse(item.body, item.codings)
        item.body = b""
        item.facts = analysis.facts
        return analysis.thumbnail
