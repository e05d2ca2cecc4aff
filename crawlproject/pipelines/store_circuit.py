"""The circuit of the thumbnail store: what is to be done while it is down."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from contextlib import suppress

from scrapy.crawler import Crawler

from crawlproject.errors import StoreDown
from crawlproject.frontier import engine
from crawlproject.frontier.scheduler import frontier_of
from crawlproject.pipelines.stores import PROBE, PROBE_SIZE, ThumbnailStore, described

_AT_ONCE = 16  # writes, each in a thread
_DEADLINE = 40.0  # seconds that one write may take, a second attempt of the client's included
_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds between probes while the store is down; doubled each time
_LOOK = 0.25  # seconds between looks whether the crawl closes
_LAST = 3.0  # seconds that writes get when it does


class StoreCircuit:
    """Writes thumbnails, and finds out whose fault it is if one cannot be written.

    Each write that fails is followed by a probe: an object as large as the thumbnail, under a fixed name, by the
    same client. If that fails, too, the store is down: nothing is leased and every write is refused, until a
    probe goes well. If it goes well, the write is tried once more, probe included; what fails beside two good
    probes is trouble with that one thumbnail.

    A write that hangs holds up neither the worker nor its end: it has a deadline, and a thread that the
    process need not wait for.
    """

    def __init__(self, store: ThumbnailStore, crawler: Crawler | None = None) -> None:
        self.store = store
        self.crawler = crawler
        self.trouble = ""  # what the store says, while it is down
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._probing: asyncio.Task[Exception | None] | None = None
        self._recovery: asyncio.Task[None] | None = None

    async def write(self, name: str, data: bytes) -> None:
        """Store a thumbnail.

        Raises:
            StoreDown: the store takes nothing, or the crawl closes before it has taken this.
            Exception: it does not take this one: whatever the store says.

        """
        loop = asyncio.get_running_loop()
        writing = asyncio.create_task(self._write(name, data))
        deadline = math.inf
        while not writing.done():
            await asyncio.wait((writing,), timeout=_LOOK)
            if not writing.done() and self._is_closing():
                deadline = min(deadline, loop.time() + (0.0 if self.trouble else _LAST))
                if loop.time() >= deadline:
                    writing.cancel()
                    raise StoreDown("the crawl closes")
        writing.result()

    def close(self) -> None:
        """End the probes."""
        for task in (self._probing, self._recovery):
            if task is not None:
                task.cancel()

    async def _write(self, name: str, data: bytes) -> None:
        async with self._places:
            for last in (False, True):
                if self.trouble:
                    raise StoreDown(self.trouble)
                failed = await _tried(self.store.write, name, data)
                if failed is None:
                    return
                found = await self._probe_once(len(data))
                if found is not None:
                    self._trip(found, len(data))
                    raise StoreDown(self.trouble)
                if last:
                    raise failed

    async def _probe_once(self, size: int) -> Exception | None:
        """Probe, or wait for the probe under way: a hundred writes may fail at once."""
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe(size))
        return await asyncio.shield(self._probing)

    async def _probe(self, size: int) -> Exception | None:
        """Return what keeps an object of `size` bytes from being stored, None if nothing does."""
        failed = await _tried(self.store.write, PROBE, bytes(max(size, PROBE_SIZE)))
        if failed is not None:
            self._count("store/probes_failed")
        return failed

    def _trip(self, error: Exception, size: int) -> None:
        if self.trouble:
            return
        self._count("store/down")
        self.trouble = (
            f"thumbnails cannot be stored in {self.store.place} ({described(error)}): {self.store.remedy}; "
            "it is tried until they can"
        )
        if self.crawler is not None:
            frontier_of(self.crawler).pause(self.trouble)
        self._recovery = asyncio.create_task(self._recover(size))

    async def _recover(self, size: int) -> None:
        pause = _PAUSE
        await asyncio.sleep(pause)
        while await self._probe_once(size) is not None:
            pause = min(2 * pause, _LONGEST_PAUSE)
            await asyncio.sleep(pause)
        reason, self.trouble = self.trouble, ""
        if self.crawler is not None:
            frontier_of(self.crawler).resume(reason)

    def _is_closing(self) -> bool:
        return self.crawler is not None and engine.is_closing(self.crawler)

    def _count(self, name: str) -> None:
        if self.crawler is not None and self.crawler.stats is not None:
            self.crawler.stats.inc_value(name)


async def _tried(write: Callable[[str, bytes], None], name: str, data: bytes) -> Exception | None:
    """Write in a daemon thread and return what it raises; those of an executor keep a process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Exception | None] = loop.create_future()

    def finish(failed: Exception | None) -> None:
        if not done.done():
            done.set_result(failed)

    def run() -> None:
        failed = None
        try:
            write(name, data)
        except Exception as error:  # a store may raise what it likes
            failed = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(finish, failed)

    threading.Thread(target=run, name="store", daemon=True).start()
    try:
        async with asyncio.timeout(_DEADLINE):
            return await done
    except TimeoutError:
        return TimeoutError(f"no end after {_DEADLINE:g} s")
