"""Decodes a picture once, in a separate process, for its facts and thumbnails; stores these, and the original."""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any, Self, TypeVar

from scrapy.crawler import Crawler

from crawlproject import config
from crawlproject.errors import ConfigError, StorageDown
from crawlproject.frontier.scheduler import scheduler_of
from crawlproject.imaging.decoders import Decoders, decoders_of_process
from crawlproject.imaging.failures import AnalysesNotLoaded, DecodersStopped, NoDecoder, UnreadableImage
from crawlproject.imaging.messages import Inspected, Job
from crawlproject.models import FetchedImage, ImageEvent, StoredThumbnail, Thumbnail
from crawlproject.politeness.outcomes import STOPPED, STORAGE_UNAVAILABLE, UNREADABLE, Failure
from crawlproject.runtime import Breaker
from crawlproject.storage.blobs import Storage, StorageWriter, open_storage, original_name, thumbnail_name
from crawlproject.texts import printable

T = TypeVar("T")

_WIDTH, _HEIGHT = 256, 192  # of the picture that analyses are tried on at the start


def job_of(settings: config.Config) -> Job:
    """Return what decoders do with each picture."""
    return Job(
        max_pixels=settings.max_pixels,
        max_size=settings.download_maxsize,
        quality=settings.thumbnail_quality,
        timeout=settings.decode_timeout,
        sizes=settings.thumbnail_sizes,
        mode=settings.thumbnail_mode,
        enlarge=settings.thumbnail_enlarge,
        form=settings.thumbnail_format,
        formats=settings.formats,
        return_bodies=settings.keep_originals is not None,
        analyses=settings.analyses,
    )


def check_analyses(settings: config.Config) -> None:
    """Have the analyses look at a picture, in a decoder as in the crawl. Blocks.

    Raises:
        ConfigError: one cannot be loaded, or fails.

    """
    job = job_of(settings)
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        try:
            errors = runner.run(_tried(replace(job, formats=(*job.formats, "BMP"), max_pixels=_WIDTH * _HEIGHT)))
        except AnalysesNotLoaded as error:
            raise ConfigError(f"CRAWL_ANALYSES: {error}") from None
        except NoDecoder:  # which the crawl will report, and wait for
            return
    if errors:
        said = "; ".join(f"{name}: {error}" for name, error in errors.items())
        raise ConfigError(f"CRAWL_ANALYSES fails on a plain picture: {said}")


async def _tried(job: Job) -> Mapping[str, str]:
    """Return what went wrong when the analyses of a job looked at a BMP."""
    from PIL import Image  # here: decoders have it, and a worker needs it for nothing else

    picture = io.BytesIO()
    Image.effect_noise((_WIDTH, _HEIGHT), 50).convert("RGB").save(picture, "BMP")
    decoders = Decoders(1, job)
    try:
        made = await decoders.analyse(picture.getvalue())
    finally:
        await decoders.close()
    return made.errors


class ThumbnailPipeline:
    """Turns a `FetchedImage` into an event, with facts and stored thumbnails; one without pixels has none.

    `originals` is where the body itself is kept, once for all pictures that have it; None: it is not.

    A decoder process opens the picture and decodes it once. A picture that cannot be read, or that its decoder
    does not survive, goes on as a `Failure`; so does any picture while the storage is down, or no decoder can be
    started. An error with one file alone is raised. None of this counts against the source.
    When the shutdown grace is over, decoders are killed and their pictures are handed back. The crawlers of one
    process share the decoders.
    """

    def __init__(
        self,
        settings: config.Config,
        storage: Storage,
        crawler: Crawler | None = None,
        originals: Storage | None = None,
        decoders: Decoders | None = None,
    ) -> None:
        self.settings = settings
        self.storage = StorageWriter(storage, crawler)
        self.originals = None if originals is None else StorageWriter(originals, crawler, "originals")
        self.crawler = crawler
        self.breaker = Breaker("decoders", crawler)
        self.decoders = decoders or Decoders(settings.decode_processes, job_of(settings))
        self._grace_over: asyncio.Task[None] | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the pipeline with the storages that `IMAGES_STORE` and `CRAWL_KEEP_ORIGINALS` name."""
        settings = config.load(crawler.settings)
        originals = open_storage(settings.keep_originals, crawler.settings) if settings.keep_originals else None
        decoders = decoders_of_process(settings.decode_processes, job_of(settings))
        return cls(settings, open_storage(settings.images_store, crawler.settings), crawler, originals, decoders)

    def open_spider(self) -> None:
        """Have decoders ready when pictures come, and watch for the end of the shutdown grace."""
        if self.crawler is not None:
            if getattr(self.crawler.spider, "one_item_each", False):  # no other spider has pictures
                self.decoders.begin()
            self._grace_over = asyncio.create_task(self._stop(scheduler_of(self.crawler).shutdown.grace_over))

    async def _stop(self, grace_over: asyncio.Event) -> None:
        await grace_over.wait()
        self.decoders.stop()

    async def close_spider(self) -> None:
        """End the decoder processes, which have nothing left to do by now."""
        if self._grace_over is not None:
            self._grace_over.cancel()
        self.breaker.close()
        self.storage.close()
        if self.originals is not None:
            self.originals.close()
        await self.decoders.close()

    async def process_item(self, item: Any) -> Any:
        """Return the event of a `FetchedImage` or an `Inspected`, or a failure; other items as they are."""
        if not isinstance(item, FetchedImage | Inspected):
            return item
        if isinstance(item, Inspected):
            return await self._looked(self.decoders.inspect(item, self._check), item.status)
        look = self.decoders.analyse(item.body, item.codings, item.source, self._check)
        analysis = await self._looked(look, 200)
        if isinstance(analysis, Failure):
            return analysis
        body = analysis.body or item.body
        item.body = b""
        original = None
        try:
            if self.originals is not None:
                # By its own digest: that of the facts is from a process that a picture may have taken over.
                digest = await asyncio.to_thread(hashlib.sha256, body)
                original = original_name(digest.hexdigest(), analysis.facts.format)
                await self.originals.write(original, body, once=True)
            del body
            thumbnails = await self._store(item.said["identifier"], analysis.thumbnails)
        except StorageDown as error:
            return Failure(STORAGE_UNAVAILABLE, str(error))
        return ImageEvent(
            **item.said,
            **analysis.facts.named(),
            thumbnail=thumbnails[0].name if thumbnails else None,
            status=200,
            thumbnails=thumbnails,
            original=original,
            analysis=analysis.results,
            analysis_errors=analysis.errors,
        )

    async def _store(self, identifier: str, thumbnails: tuple[Thumbnail, ...]) -> tuple[StoredThumbnail, ...]:
        """Store the thumbnails, the first of which has no size in its name."""
        form, (_, *further) = self.settings.thumbnail_format, self.settings.thumbnail_sizes
        stored = []
        for size, made in zip((None, *further), thumbnails, strict=False):
            name = thumbnail_name(identifier, form, size)
            await self.storage.write(name, made.data)
            stored.append(StoredThumbnail(name, made.width, made.height))
        return tuple(stored)

    async def _looked(self, look: Awaitable[T], status: int) -> T | Failure:
        """Return what a decoder has found, or the failure that becomes of the picture."""
        try:
            return await look
        except DecodersStopped:
            return Failure(STOPPED, "the worker stops and decodes no more pictures")
        except UnreadableImage as error:
            return Failure(UNREADABLE, str(error), status=status, facts=error.facts)
        except NoDecoder as error:
            self.breaker.trip(
                f"pictures cannot be decoded ({printable(str(error), 300)}): check this machine's memory, "
                "its limits on processes and open files, and the worker's Python; retrying until it works",
                self._probe,
            )
            return Failure(STORAGE_UNAVAILABLE, self.breaker.outage)

    def _check(self) -> None:
        if self.breaker.outage:
            raise NoDecoder(self.breaker.outage)

    async def _probe(self) -> Exception | None:
        try:
            await self.decoders.start()
        except (NoDecoder, DecodersStopped) as error:
            return error
        return None
