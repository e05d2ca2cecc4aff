"""The way of requests from the overflows of sources to a store, and back when their turn comes."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured

from crawlproject import config
from crawlproject.contrib.overflow.packs import compressed, decompressed, probe
from crawlproject.contrib.overflow.plugin import OverflowSettings
from crawlproject.extensions import Extension
from crawlproject.frontier.contents import read_counters
from crawlproject.state.calls import Due, Extent, Tail, Wanted
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.storage.blobs import Storage, described, open_storage
from crawlproject.threads import in_thread

logger = logging.getLogger(__name__)

T = TypeVar("T")

_SOURCES_A_CALL = 50
_LOOK_EVERY_S = 0.5  # while there is nothing to do
_SWEEP_EVERY_S = 600.0
_SWEPT_A_CALL = 500
_STORE_TIMEOUT_S = 40.0  # for one read or write, including a second attempt by the client
_RETRY_S, _LONGEST_RETRY_S = 1.0, 30.0  # while the store is down: less than a fault is remembered
_FAULT_S = 60  # that a fault is remembered
TRIES = 5  # to read an extent, ten seconds apart (overflow_take.lua), before it counts as lost
_MARK = ".store"  # in the folder of a frontier's packs: this is the store that they are in


class StoreTrouble(Exception):
    """The store cannot be written or read, or is another one than that of this frontier; says what to do."""


class Overflow:
    """Spills what is beyond the windows of a frontier's sources to a store, and fills their queues from there.

    Any number of workers may do so at the same time; each step is such that a worker can die at any moment. An
    extent is in the store before its requests leave Redis, and leaves the store an hour after they are back. While
    the store is down, the reason is noted in Redis, where leasing pauses when the tails grow too long.
    """

    def __init__(self, state: State, packs: Storage) -> None:
        self._state = state
        self._packs = packs
        self._keys = state.keys
        self._scripts = state.scripts
        self._folder = ""  # once it is known that this is the store of the packs there
        self._fault = ""
        self._retry_s = _RETRY_S
        self._tries: Counter[bytes] = Counter()  # of extents that could not be read

    # Steps of loops.Loops

    async def keep(self) -> None:
        """Do what is to be done; wait if nothing is."""
        await self._guarded(self.step, _LOOK_EVERY_S)

    async def keep_sweeping(self) -> None:
        """Remove packs that nobody needs."""
        await self._guarded(self.sweep, _SWEEP_EVERY_S)

    async def _guarded(self, step: Callable[[], object], pause_s: float) -> None:
        try:
            if not await step():  # type: ignore[misc]
                await asyncio.sleep(pause_s)
        except StoreTrouble as error:
            if str(error) != self._fault:
                logger.error("%s", error)
            self._fault = str(error)
            await self._state.redis.set(self._keys.spill_fault, self._fault, ex=_FAULT_S)
            await asyncio.sleep(self._retry_s)
            self._retry_s = min(2 * self._retry_s, _LONGEST_RETRY_S)

    # What they do

    async def step(self) -> int:
        """Fetch the extents that are wanted, and make others; return how many these were.

        Raises:
            StoreTrouble: the store fails. What is left is looked at again after ten seconds.

        """
        folder = await self._open()
        due = await self._scripts.overflow_take(most=_SOURCES_A_CALL, folder=folder)
        if due.folder != folder:  # another worker was first
            self._folder = ""
            return 1
        done = 0
        for wanted in due.wanted:
            done += await self._refill(wanted)
        if due.tails:
            done += await self._spill(due)
        if done:
            await self._well()
        return done

    async def _spill(self, due: Due) -> int:
        """Store what makes extents in one pack, and have it leave Redis."""
        pack = f"{due.folder}/{due.now}-{secrets.token_hex(6)}"
        extents = await self._in_store(lambda: self._write(pack, due.tails))
        # A call whose reply is lost is repeated, and refused then: so the pack stays, whatever the answer.
        await self._scripts.spill_commit(pack, due.now, extents)
        return len(extents)

    def _write(self, pack: str, tails: list[Tail]) -> list[Extent]:
        body, extents, offset = [], [], 0
        for tail in tails:
            blob = compressed([tail.source.encode(errors="surrogateescape"), *tail.entries])
            extents.append(Extent.of(tail, offset, len(blob)))
            body.append(blob)
            offset += len(blob)
        self._packs.write(pack, b"".join(body))
        return extents

    async def _refill(self, wanted: Wanted) -> int:
        """Fetch an extent; return 0 if it is to be tried again."""
        entries = await self._read(wanted)
        if entries is None and not await self._is_lost(wanted):
            return 0
        await self._scripts.take_extent(wanted, entries or [])
        return 1

    async def sweep(self) -> int:
        """Remove packs that nobody needs; return 0."""
        folder = await self._open()
        names = await self._in_store(lambda: list(self._packs.sizes(f"{folder}/")))
        for first in range(0, len(names), _SWEPT_A_CALL):
            for name in await self._scripts.sweep_packs(names[first : first + _SWEPT_A_CALL]):
                await self._in_store(lambda name=name: self._packs.remove(name))  # type: ignore[misc]
        return 0

    # The store

    async def _open(self) -> str:
        """Return the folder of this frontier's packs, having seen that they are in this store."""
        if self._folder:
            return self._folder
        redis: Any = self._state.redis
        kept = await redis.get(self._keys.pack_folder)
        if kept is None:
            folder = f"{re.sub('[^A-Za-z0-9]', '', self._keys.spider)}-{secrets.token_hex(6)}"
            await self._in_store(lambda: self._packs.write(f"{folder}/{_MARK}", b""))
            return folder  # kept when a worker's first pack has made it that of the frontier
        await self._check_store(kept.decode())
        self._folder = kept.decode()
        return self._folder

    async def _check_store(self, folder: str) -> None:
        mark = f"{folder}/{_MARK}"
        if not await self._in_store(lambda: self._packs.has(mark)):
            raise StoreTrouble(
                f"CRAWL_OVERFLOW_STORE={self._packs.place} is not the store that holds what was spilled before: "
                f"{mark} is missing there. Use the same for all workers, or bring it back; to give up what it "
                "had, make that file"
            )

    async def _read(self, wanted: Wanted) -> list[bytes] | None:
        """Return the requests of an extent; None if other bytes come, or it is another source's."""
        try:
            blob = await self._in_store(lambda: self._packs.read(*wanted.place()), (FileNotFoundError,))
            name, *entries = decompressed(blob)
        except (FileNotFoundError, ValueError):
            return None
        is_own = wanted.source in {"", name.decode(errors="surrogateescape")}
        return entries if is_own and wanted.is_of(entries) else None

    async def _is_lost(self, wanted: Wanted) -> bool:
        """Tell whether an extent that could not be read counts as lost: not before the last of `TRIES`.

        Raises:
            StoreTrouble: the store fails, gives other bytes than were written, or is another one. Nothing is lost.

        """
        pack, *_ = wanted.place()
        await self._check_store(pack.partition("/")[0])
        await self._in_store(lambda: probe(self._packs))
        self._tries[wanted.reference] += 1
        if self._tries[wanted.reference] < TRIES:
            logger.warning(
                "An extent in %s cannot be read as it was written, trying again: %s", self._packs.place, pack
            )
            return False
        del self._tries[wanted.reference]
        logger.error(
            "The requests in an extent of source %s are lost: %s in %s is missing or broken",
            wanted.source or "that was dropped",
            pack,
            self._packs.place,
            extra={"source": wanted.source},
        )
        return True

    async def _in_store(self, work: Callable[[], T], passing: tuple[type[Exception], ...] = ()) -> T:
        """Run blocking work of the store in a thread.

        Raises:
            StoreTrouble: it fails, or takes too long.

        """
        task = in_thread("overflow", work)
        await asyncio.wait((task,), timeout=_STORE_TIMEOUT_S)
        error = task.exception() if task.done() else TimeoutError(f"not done after {_STORE_TIMEOUT_S:g} s")
        if error is None:
            return task.result()
        if isinstance(error, passing):
            raise error
        raise StoreTrouble(
            f"CRAWL_OVERFLOW_STORE={self._packs.place} cannot be used ({described(error)}): {self._packs.remedy}; "  # type: ignore[arg-type]
            "retrying until it can"
        ) from error

    async def _well(self) -> None:
        """Note that the store works."""
        self._retry_s = _RETRY_S
        if self._fault:
            logger.info("CRAWL_OVERFLOW_STORE=%s works again", self._packs.place)
            self._fault = ""
            await self._state.redis.delete(self._keys.spill_fault)


class OverflowStore(Extension):
    """Spills and refills in every worker, also for spiders that this one finds requests for.

    Perhaps none of their workers runs, and what is found for them is not to stay in Redis.
    """

    def __init__(self, crawler: Crawler) -> None:
        if crawler.settings.getbool("FRONTIER_ALONE"):  # `scrapy shell`, for one
            raise NotConfigured
        super().__init__(crawler)
        store = config.read(OverflowSettings, crawler.settings).store
        # here a fault stops the start
        self._packs = None if store is None else open_storage(store, crawler.settings, is_synced=True)

    def begin(self) -> None:
        """Begin, or say what this worker cannot fetch without a store."""
        scheduler = self.scheduler
        if self._packs is None:
            self._warning = asyncio.create_task(_warn_of_others(scheduler.state))
            return
        for state in (scheduler.state, *map(scheduler.state.beside, getattr(scheduler.spider, "finds_for", ()))):
            overflow = Overflow(state, self._packs)
            self.loops.start(overflow.keep, overflow.keep_sweeping)


async def _warn_of_others(state: State) -> None:
    try:
        spilled = (await read_counters(state)).spilled
    except REDIS_TROUBLE as error:
        state.failed(error)
        return
    if spilled:
        logger.warning(
            "Requests of this frontier are in the store of another worker, and this one cannot fetch them: "
            "set CRAWL_OVERFLOW_STORE as that has it"
        )
