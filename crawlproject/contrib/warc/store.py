"""The content store of pages: WARC files in a folder or in S3, written by groups."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, TypeVar

from scrapy.crawler import Crawler

from crawlproject import config
from crawlproject.contrib.warc.index import INDEX_TYPE, write_index
from crawlproject.contrib.warc.plugin import WarcSettings
from crawlproject.contrib.warc.records import Exchange, Place, members, warcinfo
from crawlproject.contrib.warc.segments import (
    OPEN,
    Segment,
    closed_segment,
    closed_segments,
    index_of,
    make_folder,
    segments_among,
    size_of,
    take_over,
)
from crawlproject.errors import ConfigError, StorageDown
from crawlproject.runtime import Breaker
from crawlproject.storage.blobs import PROBE, PROBE_SIZE, Folder, described, ended, folder_of, refusing
from crawlproject.storage.s3 import S3Storage
from crawlproject.texts import printable
from crawlproject.threads import in_thread

logger = logging.getLogger(__name__)

T = TypeVar("T")

_GROUP_BYTES = 8_000_000  # of bodies; what is written and synced together
_CLOSING_S = 3.0  # how long what waits gets when the crawl closes
_SEGMENT_BYTES, _SEGMENT_AGE_S = 1_000_000_000, 3600.0  # at which a file is closed
_SPOOL_BYTES = 10_000_000_000  # most that wait to be uploaded
_LOOK_EVERY_S = 1.0  # for a segment that is old enough
_SWEEP_EVERY_S = 30.0  # for segments that are closed, or of processes that died
_REMEDY = "make room, or bring the folder back as it was (with its .open, which a worker makes at its start)"


class _SpoolFull(Exception):
    """Too much waits to be uploaded."""


class PageStore:
    """Keeps pages in the store that `CRAWL_PAGES_STORE` names.

    Pages that come while a group is being written and synced are the next group: one sync for all of them. When
    one fails, its segment is left to a sweep, and the store is down: nothing is leased and every write is refused,
    until a probe succeeds. Nothing here blocks the event loop.

    For S3, segments are written into a folder of this machine (`CRAWL_PAGES_SPOOL`) and uploaded when they are
    closed. While S3 is down they wait there, up to 10 GB; then the store is down, too.

    Raises:
        Exception: the folder cannot be made, or boto rejects the settings.

    """

    def __init__(self, settings: Any, crawler: Crawler | None = None) -> None:
        self.config = config.load(settings)
        ours = config.read(WarcSettings, settings)
        uri = ours.store
        if uri is None:
            raise ConfigError("CRAWL_PAGES_STORE is not set: name a folder, or s3://bucket/prefix/")
        self.bucket = S3Storage(uri, settings) if uri.startswith("s3://") else None
        self.folder = _folder_of(uri, ours.spool, self.bucket)
        self.place = printable(str(self.folder), 500)
        self.crawler = crawler
        self.breaker = Breaker("pages_store", crawler)
        self._segment: Segment | None = None
        self._info, self._first = "", b""  # the id of its warcinfo record, and that
        self._waiting: deque[tuple[Exchange, asyncio.Future[Place]]] = deque()
        self._groups: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._thread: asyncio.Future[Any] | None = None
        self._sweeping: asyncio.Future[None] | None = None
        self._trouble = ""  # of the sweeps
        make_folder(self.folder)

    @property
    def outage(self) -> str:
        """What is wrong while the store is down; "" while it is not."""
        return self.breaker.outage

    def open(self) -> None:
        """Begin to close segments in time, to take over those of processes that died, and to upload."""
        self._keeper = asyncio.create_task(self._keep())

    async def write(self, exchange: Exchange) -> Place:
        """Keep a page; return where, once it is on this machine's disk.

        Raises:
            StorageDown: the store is down, or the crawl closes before the page is kept.
            Exception: this one page cannot be kept.

        """
        if self.outage:
            raise StorageDown(self.outage)
        done: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        self._waiting.append((exchange, done))
        if self._groups is None or self._groups.done():
            self._groups = asyncio.create_task(self._write_groups())
        return await done

    async def close(self, grace: float = _CLOSING_S) -> None:
        """Close the segment and upload what waits, for `grace` seconds at most; what is left is uploaded later."""
        if self._keeper is not None:
            self._keeper.cancel()
        if self._groups is not None:
            await self._groups
        self.breaker.close()
        try:
            await self._in_turn(self._end_segment)
            async with asyncio.timeout(grace):
                if self._sweeping is not None:
                    await asyncio.wait((self._sweeping,))  # it may have looked before the segment was closed
                await asyncio.shield(self._sweep())
        except TimeoutError:
            pass  # as is said below
        except Exception as error:
            logger.warning(
                "Not all segments of pages in %s could be closed and uploaded (%s): the next worker here does it",
                self.place,
                described(error),
            )
        with suppress(OSError):
            if self.bucket is not None and (left := len(closed_segments(self.folder))):
                logger.warning(
                    "%d segments of pages wait in %s for %s: the next worker on this machine uploads them",
                    left,
                    self.place,
                    self.bucket.place,
                )

    # Groups

    async def _write_groups(self) -> None:
        while self._waiting:
            group, size = [], 0
            while self._waiting and size < _GROUP_BYTES:
                group.append(self._waiting.popleft())
                size += len(group[-1][0].body)
            ends = await self._ends([exchange for exchange, _ in group], size)
            for (_, done), end in zip(group, ends, strict=True):
                if done.done():  # cancelled
                    continue
                if isinstance(end, Exception):
                    done.set_exception(end)
                else:
                    done.set_result(end)

    async def _ends(self, group: list[Exchange], size: int) -> list[Place | Exception]:
        """Return the place of each page of a group, or its error."""
        if not self.outage:
            try:
                ends = await self._in_turn(lambda: self._commit(group))
            except Exception as error:  # whatever the file system finds wrong
                self._trip(error, size)
            else:
                self._count(ends)
                return ends
        return [StorageDown(self.outage) for _ in group]

    def _commit(self, group: list[Exchange]) -> list[Place | Exception]:
        """Write a group; all of it is on the disk when this returns."""
        segment = self._current()
        ends: list[Place | Exception] = []
        written = [] if segment.size else [self._first]
        offset = segment.size + sum(map(len, written))
        try:
            for exchange in group:
                try:
                    made = members(exchange, self._info)
                except Exception as error:  # of this page alone
                    ends.append(error)
                    continue
                ends.append(Place(segment.name, offset, len(made[0])))
                written += made
                offset += sum(map(len, made))
            segment.append(b"".join(written))
        except BaseException:
            self._segment = None
            segment.leave()
            raise
        return ends

    def _current(self) -> Segment:
        """Return the segment to write to; begin one if there is none, or the last is large enough."""
        if self._is_due():
            self._end_segment()
        self._check_spool()
        if self._segment is None:
            self._segment = Segment(self.folder)
            self._info, self._first = warcinfo(self._segment.name, self._fields())
        return self._segment

    def _is_due(self) -> bool:
        segment = self._segment
        return segment is not None and (
            segment.size >= _SEGMENT_BYTES or time.monotonic() - segment.began >= _SEGMENT_AGE_S
        )

    def _end_segment(self) -> None:
        """Close the segment; where that fails, it is left to a sweep."""
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.close()

    def _fields(self) -> dict[str, str]:
        return {
            "software": self.config.user_agent.partition(" ")[0],
            "format": "WARC File Format 1.1",
            "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
            "operator": self.config.contact or "",
            "http-header-user-agent": self.config.user_agent,
            "robots": "obey",
        }

    def _count(self, ends: list[Place | Exception]) -> None:
        if self.crawler is not None and self.crawler.stats is not None:
            kept = [end for end in ends if isinstance(end, Place)]
            self.crawler.stats.inc_value("pages_store/kept", len(kept))
            self.crawler.stats.inc_value("pages_store/groups")

    # Threads

    async def _in_turn(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread, after what runs: a segment is one thread's at a time.

        Raises:
            TimeoutError: it hangs, or what ran before it does.

        """
        async with self._turn:
            if self._thread is not None:
                with suppress(Exception):  # as was said then
                    await ended(self._thread, self.crawler)
                if not self._thread.done():
                    raise TimeoutError("what was written before has not ended")
            self._thread = in_thread("pages", work)
            result: T = await ended(self._thread, self.crawler)
            return result

    # Outages

    def _trip(self, error: Exception, size: int) -> None:
        outage = f"pages cannot be kept in {self.place} ({described(error)}): {_REMEDY}"
        if isinstance(error, _SpoolFull):
            outage = f"no more pages can be kept: {error}"
        self.breaker.trip(f"{outage}; retrying until they can", lambda: self._probe(size))

    def _check_spool(self) -> None:
        """Raise _SpoolFull if too much waits to be uploaded."""
        if self.bucket is None or (size := size_of(self.folder)) < _SPOOL_BYTES:
            return
        self._end_segment()  # so that it, too, can be uploaded
        because = f" ({self._trouble})" if self._trouble else ""
        raise _SpoolFull(
            f"{size} bytes wait to be uploaded from {self.place} to {self.bucket.place}{because}, and at most "
            f"{_SPOOL_BYTES} may: {self.bucket.remedy}"
        )

    async def _probe(self, size: int) -> Exception | None:
        """Return the error of keeping `size` bytes, None if it succeeds."""
        try:
            await self._in_turn(lambda: self._try(size))
        except Exception as error:
            return error
        return None

    def _try(self, size: int) -> None:
        self._check_spool()
        _write_probe(self.folder, max(size, PROBE_SIZE))

    # Segments that are closed

    async def _keep(self) -> None:
        """End the segment when it is old enough, and sweep."""
        loop = asyncio.get_running_loop()
        next_sweep = 0.0
        while True:
            if self._is_due():
                with suppress(Exception):  # a sweep finds it
                    await self._in_turn(self._end_segment)
            if loop.time() >= next_sweep:
                next_sweep = loop.time() + _SWEEP_EVERY_S
                self._sweep()
            await asyncio.sleep(_LOOK_EVERY_S)

    def _sweep(self) -> asyncio.Future[None]:
        """Take over the segments of processes that died, and upload what is closed; in a thread, one at a time."""
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = in_thread("pages_sweep", self._take_over_and_upload)
            self._sweeping.add_done_callback(self._say)
        return self._sweeping

    def _take_over_and_upload(self) -> None:
        for taken in take_over(self.folder):
            logger.warning(
                "Closed the segment of pages %s, which was left open: %d bytes, %d of half a record cut off",
                *taken,
            )
        there = {path.name for path in self.folder.iterdir()}
        for name in segments_among(there):
            if self.bucket is None and index_of(name) in there:
                continue
            with closed_segment(self.folder, name) as file:
                if file is not None and self.bucket is None:
                    self._index(file)
                elif file is not None and self.bucket is not None:
                    self._upload(file, self.bucket)

    def _upload(self, file: Path, bucket: S3Storage) -> None:
        """Upload a segment and its index, and remove both here."""
        index = None
        try:
            index = self._index(file)
        except OSError as error:  # as on a full disk, which the upload gives room
            logger.warning("%s is uploaded without an index (%s): run scrapy index", file.name, described(error))
        bucket.put(file, "application/warc")
        if index is not None:
            bucket.put(index, INDEX_TYPE)
            index.unlink()
        file.unlink()

    def _index(self, file: Path) -> Path:
        """Return the index of a closed segment; make it if there is none."""
        index = file.with_name(index_of(file.name))
        if not index.exists():
            made, size = self.folder / OPEN / index.name, file.stat().st_size
            if (end := write_index(file, made)) < size:
                logger.warning("%s is damaged from byte %d on: its index ends there", file.name, end)
            Folder(self.folder).put(made, INDEX_TYPE)  # whole, also after a power cut
        return index

    def _say(self, sweep: asyncio.Future[None]) -> None:
        """Log what is wrong with the sweeps when that begins, and when it ends."""
        error = None if sweep.cancelled() else sweep.exception()
        before, self._trouble = self._trouble, described(error) if isinstance(error, Exception) else ""
        if self._trouble:
            self.breaker.count("sweeps_failed")
        if bool(before) == bool(self._trouble):
            return
        where = f" to {self.bucket.place}" if self.bucket is not None else ""
        if self._trouble:
            logger.warning(
                "Closed segments of pages in %s cannot be %s (%s); they stay there; trying again",
                self.place,
                f"uploaded{where}" if where else "taken over and indexed",
                self._trouble,
            )
        else:
            doing = "Uploading" if where else "Taking over"
            logger.info("%s closed segments of pages in %s again", doing, self.place)


def check_page_store(settings: Any) -> None:
    """Try to write to the store that `CRAWL_PAGES_STORE` names, if it is set.

    Raises:
        ConfigError: it cannot be written now.

    """
    uri = config.read(WarcSettings, settings).store
    if uri is not None:
        with refusing("CRAWL_PAGES_STORE", uri):
            store = PageStore(settings)
            _write_probe(store.folder, PROBE_SIZE)
            if store.bucket is not None:
                store.bucket.write(PROBE, bytes(PROBE_SIZE))


def _folder_of(uri: str, spool: str, bucket: S3Storage | None) -> Path:
    """Return the folder that segments are written to: the store, or this machine's spool for a bucket."""
    if bucket is None:
        return folder_of(uri)
    # A name of its own for each bucket: crawls of one machine may share the spool, not its contents.
    digest = hashlib.sha1(bucket.place.encode(), usedforsecurity=False).hexdigest()[:12]
    return folder_of(spool) / f"{bucket.bucket}-{digest}"


def _write_probe(folder: Path, size: int) -> None:
    with NamedTemporaryFile(dir=folder / OPEN, prefix=PROBE) as probe:
        probe.write(bytes(size))
        probe.flush()
        os.fsync(probe.fileno())
