"""Writes thumbnails, or originals, to their storage, and pauses leasing while the storage is down."""

from __future__ import annotations

import asyncio
import math

from scrapy.crawler import Crawler

from crawlproject.breaker import Breaker
from crawlproject.errors import StorageDown
from crawlproject.runtime import runtime_of
from crawlproject.storage.blobs import PROBE, PROBE_SIZE, Storage, described
from crawlproject.threads import in_thread

_MAX_WRITES = 16  # at a time, each in a thread
_WRITE_TIMEOUT_S = 40.0  # for one write, including a second attempt by the client
_POLL_S = 0.25  # between checks whether the crawl closes
_CLOSING_S = 3.0  # how long pending writes get when the crawl closes


class StorageWriter:
    """Writes pictures; when a write fails, finds out whether the storage or that one picture is to blame.

    `what` they are, for messages. Each write that fails is followed by a probe: an object as large, under a fixed
    name, by the same client. If the probe fails, too, the storage is down: nothing is leased and every write is
    refused, until a probe succeeds. If the probe succeeds, the write is tried once more, with another probe; a
    write that fails twice while both probes succeed is a fault of that one picture.

    A write that hangs delays neither the worker nor its shutdown: it has a time-out, and a daemon thread. While a
    probe hangs, no other is started.
    """

    def __init__(self, storage: Storage, crawler: Crawler | None = None, what: str = "thumbnails") -> None:
        self.storage = storage
        self.what = what
        self.crawler = crawler
        self._breaker = Breaker("store", crawler)
        self._places = asyncio.Semaphore(_MAX_WRITES)
        self._probing: asyncio.Task[Exception | None] | None = None
        self._probe_write: asyncio.Future[None] | None = None

    @property
    def outage(self) -> str:
        """What is wrong while the storage is down; "" while it is not."""
        return self._breaker.outage

    async def write(self, name: str, data: bytes, *, once: bool = False) -> None:
        """Store a picture; with `once`, unless one of this name and size is there.

        Raises:
            StorageDown: the storage is down, or the crawl closes before the picture is stored.
            Exception: the storage rejects this one picture; the error is the storage's own.

        """
        loop = asyncio.get_running_loop()
        writing = asyncio.create_task(self._write(name, data, once))
        deadline = math.inf
        while not writing.done():
            await asyncio.wait((writing,), timeout=_POLL_S)
            if not writing.done() and self._is_closing():
                deadline = min(deadline, loop.time() + (0.0 if self.outage else _CLOSING_S))
                if loop.time() >= deadline:
                    writing.cancel()
                    raise StorageDown("the crawl closes")
        writing.result()

    def close(self) -> None:
        """End the probes."""
        self._breaker.close()
        if self._probing is not None:
            self._probing.cancel()

    async def _write(self, name: str, data: bytes, once: bool) -> None:
        async with self._places:
            for last in (False, True):
                if self.outage:
                    raise StorageDown(self.outage)
                error = await _outcome(self._start(name, data, once))
                if error is None:
                    return
                probe_error = await self._probe_once(len(data))
                if probe_error is not None:
                    self._trip(probe_error, len(data))
                    raise StorageDown(self.outage)
                if last:
                    raise error

    async def _probe_once(self, size: int) -> Exception | None:
        """Probe, or wait for the probe under way: many writes may fail at once."""
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe(size))
        return await asyncio.shield(self._probing)

    async def _probe(self, size: int) -> Exception | None:
        """Return the error of storing an object of `size` bytes, None if it succeeds."""
        if self._probe_write is None or self._probe_write.done():
            self._probe_write = self._start(PROBE, bytes(max(size, PROBE_SIZE)))
        error = await _outcome(self._probe_write)
        if error is not None:
            self._breaker.count("probes_failed")
        return error

    def _trip(self, error: Exception, size: int) -> None:
        self._breaker.trip(
            f"{self.what} cannot be stored in {self.storage.place} ({described(error)}): {self.storage.remedy}; "
            "retrying until they can",
            lambda: self._probe_once(size),
        )

    def _start(self, name: str, data: bytes, once: bool = False) -> asyncio.Future[None]:
        def write() -> None:
            if not (once and self.storage.has(name, len(data))):
                self.storage.write(name, data)

        return in_thread("store", write)

    def _is_closing(self) -> bool:
        return self.crawler is not None and runtime_of(self.crawler).shutdown.has_begun


async def _outcome(write: asyncio.Future[None]) -> Exception | None:
    """Return the error of a write, None if it succeeds; a write that takes too long is left running."""
    await asyncio.wait((write,), timeout=_WRITE_TIMEOUT_S)
    return write.exception() if write.done() else TimeoutError(f"not done after {_WRITE_TIMEOUT_S:g} s")  # type: ignore[return-value]
