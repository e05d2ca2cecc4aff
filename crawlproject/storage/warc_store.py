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
from typing import Any, NamedTuple, TypeVar

from scrapy.crawler import Crawler

from crawlproject import config
from crawlproject.breaker import Breaker
from crawlproject.errors import ConfigError, StorageDown
from crawlproject.runtime import runtime_of
from crawlproject.storage.blobs import PROBE, PROBE_SIZE, described, folder_of
from crawlproject.storage.folder import is_permanent
from crawlproject.storage.s3 import S3Storage
from crawlproject.storage.warc import Exchange, Place, Records
from crawlproject.storage.warc_segments import (
    OPEN,
    Names,
    Segment,
    closed_segment,
    closed_segments,
    make_folder,
    size_of,
    take_over,
)
from crawlproject.texts import printable
from crawlproject.threads import in_thread

logger = logging.getLogger(__name__)

T = TypeVar("T")

_GROUP_BYTES = 8_000_000  # of bodies; what is written and synced together
_THREAD_TIMEOUT_S = 40.0  # for one group, as for a thumbnail
_POLL_S = 0.25  # between looks at what hangs, whether the crawl closes
_CLOSING_S = 3.0  # how long what hangs gets when the crawl closes
_SEGMENT_BYTES, _SEGMENT_AGE_S = 1_000_000_000, 3600.0  # at which a file is closed
_SPOOL_BYTES = 10_000_000_000  # most that wait to be uploaded
_LOOK_EVERY_S = 1.0  # for a segment that is old enough
_SWEEP_EVERY_S = 30.0  # for segments of processes that died
_LONGEST_PAUSE_S = 60.0  # between attempts to upload; they begin at _LOOK_EVERY_S
_REMEDY = "make room, or bring the folder back as it was (with its .open, which a worker makes at its start)"


class _SpoolFull(Exception):
    """Too much waits to be uploaded."""


class _Waiting(NamedTuple):
    exchange: Exchange
    done: asyncio.Future[Place]


class PageStore:
    """Keeps pages in the store that `CRAWL_PAGES_STORE` names.

    Pages that come while a group is being written and synced are the next group: one sync for all of them. A group
    that fails is written once more; then the store is down: nothing is leased and every write is refused, until
    a probe succeeds. Nothing here blocks the event loop.

    For S3, segments are written into a folder of this machine (`CRAWL_PAGES_SPOOL`) and uploaded when they are
    closed. While S3 is down they wait there, up to 10 GB; then the store is down, too.

    Raises:
        Exception: the folder cannot be made and the error is permanent, or boto rejects the settings.

    """

    def __init__(self, settings: Any, crawler: Crawler | None = None) -> None:
        self.config = config.load(settings)
        uri = self.config.pages_store
        if uri is None:
            raise ConfigError("CRAWL_PAGES_STORE is not set: name a folder, or s3://bucket/prefix/")
        self.bucket = S3Storage(uri, settings) if uri.startswith("s3://") else None
        self.folder = _folder_of(uri, self.config, self.bucket)
        self.place = printable(str(self.folder), 500)
        self.crawler = crawler
        self.breaker = Breaker("pages_store", crawler)
        self._names, self._records = Names(), Records()
        self._segment: Segment | None = None
        self._info = ""  # the id of its warcinfo record
        self._waiting: deque[_Waiting] = deque()
        self._groups: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._thread: asyncio.Future[Any] | None = None
        self._sweeping: asyncio.Future[None] | None = None
        self._has_ended = False  # a segment, since the last sweep
        self._trouble = ""  # of the uploads
        try:
            make_folder(self.folder)
        except OSError as error:
            if is_permanent(error):
                raise

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
        waiting = _Waiting(exchange, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._groups is None or self._groups.done():
            self._groups = asyncio.create_task(self._write_groups())
        return await waiting.done

    async def close(self, grace: float = _CLOSING_S) -> None:
        """Close the segment and upload what waits, for `grace` seconds at most; what is left is uploaded later."""
        if self._keeper is not None:
            self._keeper.cancel()
        if self._groups is not None:
            await self._groups
        self.breaker.close()
        try:
            await self._in_turn(self._end_segment)
            with suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    if self._sweeping is not None:
                        await asyncio.wait((self._sweeping,))  # it may have looked before the segment was closed
                    sweep = self._sweep()
                    await asyncio.wait((sweep,))
                    sweep.result()
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
                size += len(group[-1].exchange.body)
            for waiting, end in zip(group, await self._ends(group, size), strict=True):
                if waiting.done.done():  # cancelled
                    continue
                if isinstance(end, Exception):
                    waiting.done.set_exception(end)
                else:
                    waiting.done.set_result(end)

    async def _ends(self, group: list[_Waiting], size: int) -> list[Place | Exception]:
        """Return the place of each page of a group, or its error."""
        for last in (False, True):
            if self.outage:
                break
            try:
                ends = await self._in_turn(lambda: self._commit([waiting.exchange for waiting in group]))
            except Exception as error:  # whatever the file system finds wrong
                if last or isinstance(error, (TimeoutError, _SpoolFull)):
                    self._trip(error, size)
            else:
                self._count(ends)
                return ends
        return [StorageDown(self.outage) for _ in group]

    def _commit(self, group: list[Exchange]) -> list[Place | Exception]:
        """Write a group; all of it is on the disk when this returns."""
        segment = self._current()
        ends: list[Place | Exception] = []
        members: list[bytes] = []
        offset = segment.size
        try:
            for exchange in group:
                try:
                    response, request = self._records.members(exchange, self._info)
                except Exception as error:  # of this page alone
                    ends.append(error)
                    continue
                ends.append(Place(segment.name, offset, len(response)))
                members += (response, request)
                offset += len(response) + len(request)
            segment.append(b"".join(members))
        except BaseException as error:
            self._records.drop()
            if isinstance(error, FileNotFoundError):
                self._let_go()
            raise
        self._records.keep()
        segment.records += 1
        return ends

    def _current(self) -> Segment:
        """Return the segment to write to; begin one if there is none, or the last is large enough."""
        if self._segment is not None and self._is_due():
            self._end_segment()
        if self.bucket is not None and (size := size_of(self.folder)) >= _SPOOL_BYTES:
            self._end_segment()  # so that it, too, can be uploaded
            raise _SpoolFull(f"{size} bytes wait to be uploaded")
        if self._segment is None:
            name = self._names.next()
            segment = Segment(self.folder, name)
            self._info, info = self._records.warcinfo(name, self._fields())
            try:
                segment.append(info)
            except BaseException:
                segment.leave()
                raise
            self._segment = segment
        return self._segment

    def _is_due(self) -> bool:
        segment = self._segment
        return segment is not None and (
            segment.size >= _SEGMENT_BYTES or time.monotonic() - segment.began >= _SEGMENT_AGE_S
        )

    def _end_segment(self) -> None:
        if self._segment is None:
            return
        try:
            self._segment.close()
        except FileNotFoundError:
            self._let_go()
            raise
        self._segment = None
        self._has_ended = True

    def _let_go(self) -> None:
        """Drop a segment whose file was moved; whoever finds it ends it."""
        if self._segment is not None:
            self._segment.leave()
            self._segment = None
            self._has_ended = True

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
                await self._ended(self._thread)
            self._thread = in_thread("pages", work)
            await self._ended(self._thread)
            result: T = self._thread.result()
            return result

    async def _ended(self, thread: asyncio.Future[Any]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _THREAD_TIMEOUT_S
        while not thread.done():
            await asyncio.wait((thread,), timeout=_POLL_S)
            if self._is_closing():
                deadline = min(deadline, loop.time() + _CLOSING_S)
            if not thread.done() and loop.time() >= deadline:
                raise TimeoutError(f"not done after {_THREAD_TIMEOUT_S:g} s")

    def _is_closing(self) -> bool:
        return self.crawler is not None and runtime_of(self.crawler).shutdown.has_begun

    # Outages

    def _trip(self, error: Exception, size: int) -> None:
        if isinstance(error, _SpoolFull):
            assert self.bucket is not None
            because = f" ({self._trouble})" if self._trouble else ""
            outage = (
                f"no more pages can be kept: {error} from {self.place} to {self.bucket.place}{because}, and "
                f"at most {_SPOOL_BYTES} may: {self.bucket.remedy}; "
                "retrying until they can"
            )
        else:
            outage = (
                f"pages cannot be kept in {self.place} ({described(error)}): {_REMEDY}; retrying until they can"
            )
        self.breaker.trip(outage, lambda: self._probe(size))

    async def _probe(self, size: int) -> Exception | None:
        """Return the error of keeping `size` bytes, None if it succeeds."""
        try:
            await self._in_turn(lambda: self._try(size))
        except Exception as error:
            self.breaker.count("probes_failed")
            return error
        return None

    def _try(self, size: int) -> None:
        if self.bucket is not None and (held := size_of(self.folder)) >= _SPOOL_BYTES:
            raise _SpoolFull(f"{held} bytes wait to be uploaded")
        _write_probe(self.folder, max(size, PROBE_SIZE))

    # Segments that are closed

    async def _keep(self) -> None:
        """End the segment when it is old enough, and sweep; a failed sweep is tried again at longer intervals."""
        loop = asyncio.get_running_loop()
        sweep: asyncio.Future[None] | None = None
        pause, next_sweep = 0.0, 0.0
        while True:
            if self._is_due():
                with suppress(Exception):  # the next group, or the next look, finds it again
                    await self._in_turn(self._end_if_due)
            if sweep is not None and sweep.done():
                error = sweep.exception()
                pause = 0.0 if error is None else min(max(2 * pause, _LOOK_EVERY_S), _LONGEST_PAUSE_S)
                next_sweep = loop.time() + (pause or _SWEEP_EVERY_S)
                self._say("" if error is None else described(error))  # type: ignore[arg-type]
                sweep = None
            if sweep is None and (loop.time() >= next_sweep or (self._has_ended and not pause)):
                self._has_ended = False
                sweep = self._sweep()
            await asyncio.sleep(_LOOK_EVERY_S)

    def _end_if_due(self) -> None:
        if self._is_due():
            self._end_segment()

    def _sweep(self) -> asyncio.Future[None]:
        """Take over the segments of processes that died, and upload what is closed; in a thread, one at a time."""
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = in_thread("pages_sweep", self._take_over_and_upload)
        return self._sweeping

    def _take_over_and_upload(self) -> None:
        for taken in take_over(self.folder):
            logger.warning(
                "Took over the segment of pages %s of a worker that died: %d bytes, %d of half a record cut off",
                taken.name,
                taken.size,
                taken.cut,
            )
        if self.bucket is None:
            return
        for name in closed_segments(self.folder):
            with closed_segment(self.folder, name) as file:
                if file is not None:
                    self.bucket.upload(name, file)
                    file.unlink()

    def _say(self, trouble: str) -> None:
        """Log what is wrong with the sweeps when that begins, and when it ends."""
        if trouble and not self._trouble:
            logger.warning(
                "Closed segments of pages in %s cannot be %s (%s); they stay there; trying again",
                self.place,
                "taken over" if self.bucket is None else f"uploaded to {self.bucket.place}",
                trouble,
            )
        elif self._trouble and not trouble:
            doing = "Taking over" if self.bucket is None else "Uploading"
            logger.info("%s closed segments of pages in %s again", doing, self.place)
        if trouble:
            self.breaker.count("sweeps_failed")
        self._trouble = trouble


def check_page_store(settings: Any) -> str | None:
    """Try to write to the store that `CRAWL_PAGES_STORE` names; return why that fails for now, else None.

    As `check_storage` does for thumbnails.

    Raises:
        ConfigError: it cannot be written, and the error is permanent.

    """
    uri = config.load(settings).pages_store
    if uri is None:
        return None
    try:
        store = PageStore(settings)
    except Exception as error:  # whatever boto and the file system find wrong
        raise ConfigError(f"CRAWL_PAGES_STORE={printable(uri, 500)} cannot be used: {described(error)}") from None
    for place, check, lasts in (
        (store.place, lambda: _write_probe(store.folder, PROBE_SIZE), is_permanent),
        *(((b.place, lambda: b.write(PROBE, bytes(PROBE_SIZE)), b.is_permanent),) if (b := store.bucket) else ()),
    ):
        try:
            check()
        except Exception as error:
            if lasts(error):
                raise ConfigError(
                    f"CRAWL_PAGES_STORE={printable(uri, 500)}: {place} cannot be written: {described(error)}"
                ) from None
            return f"pages cannot be stored in {place} at the moment ({described(error)})"
    return None


def _folder_of(uri: str, settings: config.Config, bucket: S3Storage | None) -> Path:
    """Return the folder that segments are written to: the store, or this machine's spool for a bucket."""
    if bucket is None:
        return folder_of(uri)
    # A name of its own for each bucket: crawls of one machine may share the spool, not its contents.
    digest = hashlib.sha1(bucket.place.encode(), usedforsecurity=False).hexdigest()[:12]
    return folder_of(settings.pages_spool) / f"{bucket.bucket}-{digest}"


def _write_probe(folder: Path, size: int) -> None:
    probe = folder / OPEN / f"{PROBE}-{os.urandom(6).hex()}"
    file = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        written = 0
        while written < size:
            written += os.write(file, bytes(min(size - written, 1 << 20)))
        os.fsync(file)
    finally:
        os.close(file)
        with suppress(OSError):  # what a killed worker leaves is a few bytes in a hidden folder
            probe.unlink()
