"""Looks at the picture once, in a process beside: its facts, its thumbnail, and that one's way into the store."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import quote, urlsplit

from scrapy.crawler import Crawler

from crawlproject import config
from crawlproject.imaging.decoders import Decoders, Job
from crawlproject.imaging.errors import TooLargeImage, UnreadableImage
from crawlproject.records import Failure, FetchedImage

logger = logging.getLogger(__name__)

_LONGEST_NAME = 200  # bytes of a file name; file systems take 255


class ThumbnailPipeline:
    """Turns the body of a `FetchedImage` into facts and a stored thumbnail.

    A decoder process opens the picture and decodes it once; the thread that waits for it writes the thumbnail.
    A picture that cannot be read, or that its decoder does not survive, goes on as a `Failure`; trouble of
    the store is raised, and costs the source nothing.
    """

    def __init__(self, settings: config.Config, store: ThumbnailStore) -> None:
        self.settings = settings
        self.store = store
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
        return cls(settings, open_store(settings.images_store, crawler.settings, settings.decode_processes))

    def close_spider(self) -> None:
        """End threads and processes; nothing is left for them to do by now."""
        self.threads.shutdown()
        self.decoders.close()

    async def process_item(self, item: Any) -> Any:
        """Return a `FetchedImage` with facts and thumbnail for its body, or a `Failure`; other items as is."""
        if not isinstance(item, FetchedImage):
            return item
        try:
            return await asyncio.get_running_loop().run_in_executor(self.threads, self._look, item)
        except UnreadableImage as error:
            kind = "too_large" if isinstance(error, TooLargeImage) else "unreadable"
            return Failure(item.identifier, item.url, item.source, kind=kind, reason=str(error), status=200)

    def _look(self, item: FetchedImage) -> FetchedImage:
        analysis = self.decoders.analyse(item.body, item.codings)
        item.body = b""
        name = thumbnail_name(item.identifier)
        self.store.write(name, analysis.thumbnail)
        item.facts, item.thumbnail = analysis.facts, name
        return item


def thumbnail_name(identifier: str) -> str:
    """Return where the thumbnail of `identifier` lies in the store: by the identifier alone, and never outside.

    The first two hex digits of its SHA-1 are the folder. Characters outside `[A-Za-z0-9._-]` are
    percent-encoded; a name that gets too long is the SHA-1.
    """
    digest = hashlib.sha1(identifier.encode(), usedforsecurity=False).hexdigest()
    name = re.sub("~", "%7E", quote(identifier, safe="._-"))
    if len(name) > _LONGEST_NAME:
        name = digest
    return f"{digest[:2]}/{name}.jpg"


class ThumbnailStore(Protocol):
    """Where thumbnails are kept. `write` blocks, may be called from several threads, and replaces."""

    def write(self, name: str, data: bytes) -> None:
        """Store `data` under `name`, wholly or not at all."""


class FolderStore:
    """Thumbnails as files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, data: bytes) -> None:
        """Write to a file beside, then rename: a reader, or a crash, never sees half a thumbnail."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        part = path.with_name(f".{os.getpid()}-{os.urandom(6).hex()}.part")
        try:
            part.write_bytes(data)
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


class S3Store:
    """Thumbnails as objects of an S3 bucket. Scrapy's `AWS_*` settings apply; unset ones are boto's defaults.

    Not Scrapy's `S3FilesStore`: that writes from the reactor's pool, which names are resolved in, and sends
    an ACL, which buckets refuse by default since 2023.
    """

    def __init__(self, uri: str, settings: Any, threads: int) -> None:
        import boto3
        from botocore.config import Config as BotoConfig

        parts = urlsplit(uri)
        self.bucket, self.prefix = parts.netloc, parts.path.lstrip("/")
        options = {
            "endpoint_url": settings.get("AWS_ENDPOINT_URL"),
            "aws_access_key_id": settings.get("AWS_ACCESS_KEY_ID"),
            "aws_secret_access_key": settings.get("AWS_SECRET_ACCESS_KEY"),
            "aws_session_token": settings.get("AWS_SESSION_TOKEN"),
            "region_name": settings.get("AWS_REGION_NAME"),
            "use_ssl": settings.get("AWS_USE_SSL"),
            "verify": settings.get("AWS_VERIFY"),
        }
        self.client = boto3.client(
            "s3",
            config=BotoConfig(max_pool_connections=threads, connect_timeout=10, read_timeout=30),
            **{name: value for name, value in options.items() if value is not None},
        )

    def write(self, name: str, data: bytes) -> None:
        """Put the object; S3 replaces it as a whole."""
        self.client.put_object(Bucket=self.bucket, Key=self.prefix + name, Body=data, ContentType="image/jpeg")


def open_store(uri: str, settings: Any, threads: int) -> ThumbnailStore:
    """Return the store that `IMAGES_STORE` names; a relative folder is one of the project's."""
    if uri.startswith("s3://"):
        return S3Store(uri, settings, threads)
    return FolderStore(config.project_dir() / uri.removeprefix("file://"))
