"""The circuit of the thumbnail store: what is to be done while it is down."""

from __future__ import annotations

import asyncio
import math

from scrapy.crawler import Crawler

from crawlproject.breaker import Circuit
from crawlproject.errors import StorageDown
from crawlproject.storage.blobs import PROBE, PROBE_SIZE, Storage, described
from crawlproject.threads import in_thread
from crawlproject.worker import worker_of

_MAX_WRITES = 16  # writes, each in a thread
_WRITE_TIMEOUT_S = 40.0  # that one write may take, a second attempt of the client's included
_POLL_S = 0.25  # between looks whether the crawl closes
_CLOSING_S = 3.0  # that writes get when it does


class StorageWriter:
    """Writes thumbnails, and finds out whose fault it is if one cannot be written.

    Each write that fails is followed by a probe: an object as large as the thumbnail, under a fixed name, by the
    same client. If that fails, too, the store is down: nothing is leased and every write is refused, until a
    probe goes well. If it goes well, the write is tried once more, probe included; what fails beside two good
    probes is outage with that one thumbnail.

    A write that hangs holds up neither the worker nor its end: it has a deadline, and a thread that the
    process need not wait for. While a probe hangs there is no other.
    """

    def __init__(self, store: Storage, crawler: Crawler | None = None) -> None:
        self.store = store
        self.crawler = crawler
        self._circuit = Circuit("store", crawler)
        self._places = asyncio.Semaphore(_MAX_WRITES)
        self._probing: asyncio.Task[Exception | None] | None = None
        self._probe_write: asyncio.Future[None] | None = None

    @property
    def outage(self) -> str:
        """What the store says, while it is down."""
        return self._circuit.outage

    async def write(self, name: str, data: bytes) -> None:
        """Store a thumbnail.

        Raises:
            StorageDown: the store takes nothing, or the crawl closes before it has taken this.
            Exception: it does not take this one: whatever the store says.

        """
        loop = asyncio.get_running_loop()
        writing = asyncio.create_task(self._write(name, data))
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
        self._circuit.close()
        if self._probing is not None:
            self._probing.cancel()

    async def _write(self, name: str, data: bytes) -> None:
        async with self._places:
            for last in (False, True):
                if self.outage:
                    raise StorageDown(self.outage)
                failed = await _end_of(self._start(name, data))
                if failed is None:
                    return
                found = await self._probe_once(len(data))
                if found is not None:
                    self._trip(found, len(data))
                    raise StorageDown(self.outage)
                if last:
                    raise failed

    async def _probe_once(self, size: int) -> Exception | None:
        """Probe, or wait for the probe under way: a hundred writes may fail at once."""
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe(size))
        return await asyncio.shield(self._probing)

    async def _probe(self, size: int) -> Exception | None:
        """Return what keeps an object of `size` bytes from being stored, None if nothing does."""
        if self._probe_write is None or self._probe_write.done():
            self._probe_write = self._start(PROBE, bytes(max(size, PROBE_SIZE)))
        failed = await _end_of(self._probe_write)
        if failed is not None:
            self._circuit.count("probes_failed")
        return failed

    def _trip(self, error: Exception, size: int) -> None:
        self._circuit.trip(
            f"thumbnails cannot be stored in {self.store.place} ({described(error)}): {self.store.remedy}; "
            "retrying until they can",
            lambda: self._probe_once(size),
        )

    def _start(self, name: str, data: bytes) -> asyncio.Future[None]:
        return in_thread("store", lambda: self.store.write(name, data))

    def _is_closing(self) -> bool:
        return self.crawler is not None and worker_of(self.crawler).shutdown.has_begun


async def _end_of(write: asyncio.Future[None]) -> Exception | None:
    """Return what a write raises; one that takes too long goes on by itself."""
    await asyncio.wait((write,), timeout=_WRITE_TIMEOUT_S)
    return write.exception() if write.done() else TimeoutError(f"not done after {_WRITE_TIMEOUT_S:g} s")  # type: ignore[return-value]
