"""Writes thumbnails, or originals, to their storage, and pauses leasing while the storage is down."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from scrapy.crawler import Crawler

from crawlproject.errors import StorageDown
from crawlproject.runtime import Breaker, runtime_of
from crawlproject.storage.blobs import PROBE, PROBE_SIZE, Storage, described
from crawlproject.threads import in_thread

T = TypeVar("T")

_MAX_WRITES = 16  # at a time, each in a thread
_TIMEOUT_S = 40.0  # for one write, including a second attempt by the client
_POLL_S = 0.25  # between checks whether the crawl closes
_CLOSING_S = 3.0  # how long what is written gets when the crawl closes


def is_closing(crawler: Crawler | None) -> bool:
    """Tell whether the crawl closes, so that nothing waits for a storage that hangs."""
    return crawler is not None and runtime_of(crawler).shutdown.has_begun


async def ended(thread: asyncio.Future[T], crawler: Crawler | None) -> T:
    """Return what a thread returns that writes; raise what it raises.

    Raises:
        TimeoutError: it hangs, and is left running; when the crawl closes it has 3 s more.

    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _TIMEOUT_S
    while not (await asyncio.wait((thread,), timeout=_POLL_S))[0]:
        if is_closing(crawler):
            deadline = min(deadline, loop.time() + _CLOSING_S)
        if loop.time() >= deadline:
            raise TimeoutError(f"not done after {_TIMEOUT_S:g} s")
    return thread.result()


class StorageWriter:
    """Writes pictures; when a write fails, finds out whether the storage or that one picture is to blame.

    `what` they are, for messages. Each write that fails is followed by a probe: an object as large, under a fixed
    name, by the same client. If the probe fails, too, the storage is down: nothing is leased and every write is
    refused, until a probe succeeds. If the probe succeeds, the write is tried once more, with another probe; a
    write that fails twice while both probes succeed is a fault of that one picture. What fails while the crawl
    closes is not tried again.

    A write that hangs delays neither the worker nor its shutdown: it has a time-out, and a daemon thread. While a
    probe hangs, no other is started.
    """

    def __init__(self, storage: Storage, crawler: Crawler | None = None, what: str = "thumbnails") -> None:
        self.storage = storage
        self.what = what
        self.crawler = crawler
        self._breaker = Breaker("store", crawler)
        self._places = asyncio.Semaphore(_MAX_WRITES)
        self._probing: asyncio.Future[None] | None = None

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
        async with self._places:
            for last in (False, True):
                if self.outage:
                    raise StorageDown(self.outage)
                error = await self._error_of(self._start(name, data, once))
                if error is None:
                    return
                fault = error if is_closing(self.crawler) else await self._probe(len(data))
                if fault is not None:
                    self._trip(fault, len(data))
                    raise StorageDown(self.outage)
                if last:
                    raise error

    def close(self) -> None:
        """End the probes."""
        self._breaker.close()

    async def _probe(self, size: int) -> Exception | None:
        """Return the error of storing an object of `size` bytes, None if it succeeds; many may ask at once."""
        if self._probing is None or self._probing.done():
            self._probing = self._start(PROBE, bytes(max(size, PROBE_SIZE)))
        return await self._error_of(self._probing)

    async def _error_of(self, write: asyncio.Future[None]) -> Exception | None:
        try:
            await ended(write, self.crawler)
        except Exception as error:  # whatever boto and the file system find wrong
            return error
        return None

    def _trip(self, error: Exception, size: int) -> None:
        self._breaker.trip(
            f"{self.what} cannot be stored in {self.storage.place} ({described(error)}): {self.storage.remedy}; "
            "retrying until they can",
            lambda: self._probe(size),
        )

    def _start(self, name: str, data: bytes, once: bool = False) -> asyncio.Future[None]:
        def write() -> None:
            if not (once and self.storage.has(name, len(data))):
                self.storage.write(name, data)

        return in_thread("store", write)
