"""Sets the pace: one worker leads, and says how fast each source may be asked."""

from __future__ import annotations

import asyncio
import http.client
import logging
import threading
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Self, TypeVar

from scrapy import signals
from scrapy.crawler import Crawler

from crawlproject import config
from crawlproject.config import MINIMUM_RATE
from crawlproject.errors import CatalogueError
from crawlproject.frontier.scheduler import frontier_of
from crawlproject.politeness.sources import Catalogue, override_of, parse_catalogue
from crawlproject.store.client import REDIS_TROUBLE, Store
from crawlproject.store.loops import Loops
from crawlproject.texts import printable, without_userinfo

logger = logging.getLogger(__name__)

T = TypeVar("T")

_TICK = 1.0  # seconds
_REFRESH = 1800.0  # seconds between two readings of the catalogue
_REFRESH_SOON = 30.0  # seconds after one that failed
_MAX_CATALOGUE = 256 * 1024 * 1024  # bytes
_PATIENCE = 60.0  # seconds for one reading
_CHUNK = 1000  # sources a call
_MOST_BAD = 10  # bad rows of the catalogue that the log names one by one
_REMIND_EVERY = 60.0  # seconds between two remarks on halted sources that have work
_SOURCES_A_TICK = 20_000  # looked at for overrides; that many or fewer are honoured within two seconds


def read_catalogue(place: str) -> Catalogue:
    """Read the catalogue from a file or an HTTP URL. Blocks.

    Raises:
        CatalogueError: it cannot be read, or makes no sense.

    """
    try:
        if place.startswith(("http://", "https://")):
            request = urllib.request.Request(place, headers={"Accept": "application/json"})
            with urllib.request.urlopen(request, timeout=30) as response:
                text = response.read(_MAX_CATALOGUE + 1)
        else:
            with Path(place.removeprefix("file://")).open("rb") as file:
                text = file.read(_MAX_CATALOGUE + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise CatalogueError(
            f"CRAWL_SOURCES={without_userinfo(place)} cannot be read: {without_userinfo(str(error))}"
        ) from None
    if len(text) > _MAX_CATALOGUE:
        raise CatalogueError(f"CRAWL_SOURCES={without_userinfo(place)} is larger than {_MAX_CATALOGUE} bytes")
    try:
        return parse_catalogue(text)
    except CatalogueError as error:
        raise CatalogueError(f"CRAWL_SOURCES={without_userinfo(place)}: {error}") from None


def batched(rows: Iterable[T]) -> Iterator[list[T]]:
    """Yield `rows` in lists short enough for one call."""
    iterator = iter(rows)
    while batch := list(islice(iterator, _CHUNK)):
        yield batch


async def _in_daemon_thread(read: Callable[[str], Catalogue], place: str) -> Catalogue:
    """Run `read` in a thread that nobody waits for at the end, and for a minute at most.

    Raises:
        CatalogueError: it raised one, or took longer.

    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Catalogue] = loop.create_future()

    def settle(result: Catalogue | None, error: Exception | None) -> None:
        if not future.done():
            if error is not None:
                future.set_exception(error)
            elif result is not None:
                future.set_result(result)

    def run() -> None:
        result, error = None, None
        try:
            result = read(place)
        except Exception as caught:
            error = caught
        with suppress(RuntimeError):  # the loop has closed: nobody asks any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, daemon=True, name="catalogue").start()
    try:
        async with asyncio.timeout(_PATIENCE):
            return await future
    except TimeoutError:
        raise CatalogueError(f"CRAWL_SOURCES={place} took longer than {_PATIENCE:.0f} s to read") from None


class Regulator:
    """In every worker, and in `scrapy monitor`; one at a time leads, by a lock in Redis that outlives it by 5 s.

    The leader renews the pulse each second, without which no slot is granted. It reads the catalogue, and
    sets each source's rate: the operator's override, else by size, else the minimum. When the catalogue
    cannot be read the last rates stay. What it writes carries its fence number, so that a leader that slept
    through its replacement changes nothing.
    """

    crawler: Crawler

    def __init__(self, settings: config.Config) -> None:
        self.config = settings
        self._fence: int | None = None
        self._limits: dict[str, float] = {}
        self._ready = False
        self._overridden: dict[str, bytes] = {}
        self._cursor = 0
        self._writing = asyncio.Lock()  # rates from an older catalogue must not come after a newer one
        self._paused = ""
        self._remind_at = 0.0

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the regulator of `crawler`."""
        one = cls(config.load(crawler.settings))
        one.crawler = crawler
        crawler.signals.connect(one.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(one.spider_closed, signal=signals.spider_closed)
        return one

    def spider_opened(self) -> None:
        """Begin to stand for the lead."""
        self.start(frontier_of(self.crawler).store)

    async def spider_closed(self) -> None:
        """Stop, and leave the lead to another at once."""
        await self.stop()

    def start(self, store: Store) -> None:
        """Begin to stand for the lead."""
        self.store = store
        self._loops = Loops(self.store)
        self._loops.start(self._lead, self._rule, self._keep_catalogue)

    async def stop(self) -> None:
        """Stop, and leave the lead to another at once."""
        await self._loops.stop()
        try:
            await self.store.scripts.resign(self.store.worker)
        except REDIS_TROUBLE as error:
            self.store.failed(error)

    async def _lead(self) -> None:
        """Renew lead and pulse; nothing else here, so that neither ever waits for a large catalogue."""
        fence = await self.store.scripts.lead(self.store.worker, ready=self._ready)
        if fence is None:
            self._fence, self._ready = None, False
        elif fence != self._fence:
            logger.info("This worker leads (reign %d)", fence)
            await self._take_over()
            self._fence = fence
        await asyncio.sleep(_TICK)

    async def _rule(self) -> None:
        """While this worker leads: set the rates that have changed, and keep the streams within bounds."""
        await asyncio.sleep(_TICK)
        fence = self._fence
        if fence is None:
            return
        async with self._writing:
            await self._set_rates(fence)
        await self._watch(fence)
        reason, dropped = await self.store.scripts.trim(fence, maxlen=self.config.stream_maxlen)
        if dropped:
            logger.warning("%d events were dropped unread: no reader (scrapy events) keeps up", dropped)
        if reason != self._paused:
            self._paused = reason
            if reason:
                logger.warning("Leasing pauses: %s", reason)

    async def _watch(self, fence: int) -> None:
        """Let time and operators have their way with the sources in trouble."""
        for source, what in await self.store.scripts.watch(fence):
            logger.warning("Source %s: %s", source, what, extra={"source": source})
        now = asyncio.get_running_loop().time()
        if now < self._remind_at:
            return
        self._remind_at = now + _REMIND_EVERY
        members: set[Any] = await self.store.redis.smembers(self.store.keys.halted)
        halted = sorted(name.decode(errors="replace") for name in members)
        for standing in await self.store.scripts.inspect(halted[:_CHUNK]):
            if work := standing.queued + standing.delayed:
                logger.warning(
                    "Source %s is halted with %d requests: scrapy resume %s",
                    standing.source,
                    work,
                    standing.source,
                    extra={"source": standing.source},
                )

    async def _take_over(self) -> None:
        """Begin with the rates of the last catalogue that a leader could read."""
        stored: dict[Any, Any] = await self.store.redis.hgetall(self.store.keys.limits)
        rates = ((source.decode(errors="replace"), override_of(rate)) for source, rate in stored.items())
        self._limits = {source: rate for source, rate in rates if rate is not None}  # others can write there, too
        self._overridden = {}
        # Without any rates to rule by there is no pulse, unless none are expected.
        if self._limits or self.config.sources is None:
            await self._begin()

    async def _begin(self) -> None:
        """Let the pulse beat: there are rates to rule by."""
        self._ready = True
        await self.store.scripts.lead(self.store.worker, ready=True)

    # Catalogue

    async def _keep_catalogue(self) -> None:
        """Read the catalogue every half hour while this worker leads."""
        fence = self._fence
        if fence is None or self.config.sources is None:
            await asyncio.sleep(0.1)
            return
        try:
            catalogue = await _in_daemon_thread(read_catalogue, self.config.sources)
        except CatalogueError as error:
            logger.error("%s; %s", error, "the last rates stay" if self._ready else "nothing is leased yet")
            await asyncio.sleep(_REFRESH_SOON)
            return
        self._report(catalogue)
        async with self._writing:
            published = await self._publish(fence, catalogue)
        await asyncio.sleep(_REFRESH if published else _TICK)

    def _report(self, catalogue: Catalogue) -> None:
        """Log the rows that make no sense."""
        place = without_userinfo(str(self.config.sources))
        for row in catalogue.bad[:_MOST_BAD]:
            logger.error("CRAWL_SOURCES=%s: row %d is left out: %s", place, row.number, printable(row.reason, 300))
        if (more := len(catalogue.bad) - _MOST_BAD) > 0:
            logger.error("CRAWL_SOURCES=%s: %d more rows are left out", place, more)

    async def _publish(self, fence: int, catalogue: Catalogue) -> bool:
        """Put the catalogue's rates and hosts into Redis; sources that it has dropped fall to the minimum.

        Those that it has a bad row for keep what they have. False if another has taken the lead in between.
        """
        scripts, redis, keys = self.store.scripts, self.store.redis, self.store.keys
        spoilt = {row.source for row in catalogue.bad} - catalogue.limits.keys()
        gone = self._limits.keys() - catalogue.limits.keys() - spoilt
        hosts: dict[Any, Any] = await redis.hgetall(keys.hosts)
        for chunk in batched(catalogue.limits.items()):
            overrides: list[Any] = await redis.mget([keys.override_rate_of + source for source, _ in chunk])
            rows = []
            for (source, rate), override in zip(chunk, overrides, strict=True):
                self._note_override(source, override, rate)
                rows.append((source, self._in_force(source, rate), rate))
            if not await scripts.set_rates(fence, rows, {}, catalogue.options):
                return False
        for some in batched(catalogue.hosts.items()):
            if not await scripts.set_rates(fence, [], dict(some)):
                return False
        old = {
            domain.decode(errors="replace")
            for domain, source in hosts.items()
            if source.decode(errors="replace") not in spoilt
        }
        if not await scripts.forget(fence, sorted(gone), sorted(old - catalogue.hosts.keys())):
            return False
        kept = {source: rate for source, rate in self._limits.items() if source in spoilt}
        self._limits = kept | dict(catalogue.limits)
        await self._begin()
        logger.info(
            "Catalogue read: %d sources, %d no longer in it, %d rows left out",
            len(catalogue.limits),
            len(gone),
            len(catalogue.bad),
        )
        return True

    # Rates

    def _in_force(self, source: str, by_size: float) -> float:
        override = self._overridden.get(source)
        rate = None if override is None else override_of(override)
        return by_size if rate is None else rate

    async def _set_rates(self, fence: int) -> None:
        """Compare the rates in force with what they should be, and write the differences."""
        redis, keys = self.store.redis, self.store.keys
        async for sources in self._known_sources():
            overrides: list[Any] = await redis.mget([keys.override_rate_of + source for source in sources])
            in_force: list[Any] = await redis.hmget(keys.rates, sources)
            changes: list[tuple[str, float, float | None]] = []
            for source, override, present in zip(sources, overrides, in_force, strict=True):
                by_size = self._limits.get(source, MINIMUM_RATE)
                self._note_override(source, override, by_size)
                rate = self._in_force(source, by_size)
                if present is None or override_of(present) != rate:
                    changes.append((source, rate, self._limits.get(source)))
            if changes:
                await self.store.scripts.set_rates(fence, changes, {})

    async def _known_sources(self) -> AsyncIterator[list[str]]:
        """Yield the known sources in chunks; more than a tick's worth are continued at the next."""
        seen = 0
        while True:
            page: Any = await self.store.redis.sscan(self.store.keys.sources, self._cursor, count=_CHUNK)
            self._cursor, found = page
            if found:
                # an operator may have added anything: one bad name must not keep the others from their rates
                yield [source.decode(errors="replace") for source in found]
            seen += len(found)
            if self._cursor == 0 or seen >= _SOURCES_A_TICK:
                return

    def _note_override(self, source: str, override: bytes | None, by_size: float) -> None:
        """Remember an override, and log it when it changes."""
        if override == self._overridden.get(source):
            return
        if override is None:
            del self._overridden[source]
            logger.info("Rate of %s: %g rps by size again", source, by_size, extra={"source": source})
            return
        self._overridden[source] = override
        rate = override_of(override)
        if rate is None:
            logger.error(
                "crawl:override_rate:%s is %r, no rate in requests a second: %g rps by size stays",
                source,
                override[:40],
                by_size,
                extra={"source": source},
            )
        else:
            logger.info(
                "Rate of %s: %g rps by override (%g by size)", source, rate, by_size, extra={"source": source}
            )
