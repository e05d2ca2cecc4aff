"""The leader: one worker sets the pace of all, and says how fast each source may be crawled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from crawlproject import config
from crawlproject.errors import CatalogueError
from crawlproject.loops import Loops
from crawlproject.sources.catalogue import Catalogue
from crawlproject.sources.rates import MINIMUM_RATE, override_of
from crawlproject.sources.reader import read_catalogue
from crawlproject.state import source_table
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.state.halts import halted_sources
from crawlproject.texts import printable, without_userinfo
from crawlproject.threads import in_thread

logger = logging.getLogger(__name__)

T = TypeVar("T")

_TICK_S = 1.0
_REFRESH_S = 1800.0  # between two readings of the catalogue
_REFRESH_SOON_S = 30.0  # after one that failed
_READ_TIMEOUT_S = 60.0  # for one reading
_CHUNK = 1000  # sources a call
_MOST_BAD = 10  # bad rows of the catalogue that the log names one by one
_REMIND_EVERY_S = 60.0  # between two remarks on halted sources that have work
_SOURCES_A_TICK = 20_000  # looked at for overrides; that many or fewer are honoured within two seconds


def batched(rows: Iterable[T]) -> Iterator[list[T]]:
    """Yield `rows` in lists short enough for one call."""
    iterator = iter(rows)
    while batch := list(islice(iterator, _CHUNK)):
        yield batch


class Leader:
    """In every worker, and in `scrapy monitor`; one at a time leads, by a lock in Redis that outlives it by 5 s.

    The leader renews the pulse each second, without which no slot is granted. It reads the catalogue, and
    sets each source's rate: the operator's override, else by size, else the minimum. When the catalogue
    cannot be read the last rates stay. What it writes carries its fence number, so that a leader that slept
    through its replacement changes nothing.
    """

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

    def start(self, state: State) -> None:
        """Begin to stand for the lead."""
        self.state = state
        self._loops = Loops(self.state)
        self._loops.start(self._lead, self._rule, self._keep_catalogue)

    async def stop(self) -> None:
        """Stop, and leave the lead to another at once."""
        await self._loops.stop()
        try:
            await self.state.scripts.resign(self.state.worker_id)
        except REDIS_TROUBLE as error:
            self.state.failed(error)

    async def _lead(self) -> None:
        """Renew lead and pulse; nothing else here, so that neither ever waits for a large catalogue."""
        fence = await self.state.scripts.lead(self.state.worker_id, ready=self._ready)
        if fence is None:
            self._fence, self._ready = None, False
        elif fence != self._fence:
            logger.info("Elected leader (term %d)", fence)
            await self._take_over()
            self._fence = fence
        await asyncio.sleep(_TICK_S)

    async def _rule(self) -> None:
        """While this worker leads: set the rates that have changed, and keep the streams within bounds."""
        await asyncio.sleep(_TICK_S)
        fence = self._fence
        if fence is None:
            return
        async with self._writing:
            await self._set_rates(fence)
        await self._watch(fence)
        reason, dropped = await self.state.scripts.trim(fence, maxlen=self.config.stream_maxlen)
        if dropped:
            logger.warning("%d events were dropped unread: no reader (scrapy events) keeps up", dropped)
        if reason != self._paused:
            self._paused = reason
            if reason:
                logger.warning("Events are at their bound: %s", reason)

    async def _watch(self, fence: int) -> None:
        """Look at the sources on the watchlist; remind of halted ones that have work."""
        for source, what in await self.state.scripts.watch(fence):
            logger.warning("Source %s: %s", source, what, extra={"source": source})
        now = asyncio.get_running_loop().time()
        if now < self._remind_at:
            return
        self._remind_at = now + _REMIND_EVERY_S
        halted = await halted_sources(self.state)
        for status in await self.state.scripts.inspect(halted[:_CHUNK]):
            if work := status.queued + status.waiting + status.delayed:
                logger.warning(
                    "Source %s is halted with %d requests: scrapy resume %s",
                    status.source,
                    work,
                    status.source,
                    extra={"source": status.source},
                )

    async def _take_over(self) -> None:
        """Begin with the rates of the last catalogue that a leader could read."""
        self._limits = await source_table.rates_by_size(self.state)
        self._overridden = {}
        # Without any rates to rule by there is no pulse, unless none are expected.
        if self._limits or self.config.sources is None:
            await self._begin()

    async def _begin(self) -> None:
        """Let the pulse beat: there are rates to rule by."""
        self._ready = True
        await self.state.scripts.lead(self.state.worker_id, ready=True)

    # Catalogue

    async def _keep_catalogue(self) -> None:
        """Read the catalogue every half hour while this worker leads."""
        fence = self._fence
        if fence is None or self.config.sources is None:
            await asyncio.sleep(0.1)
            return
        try:
            catalogue = await _read(self.config.sources)
        except CatalogueError as error:
            logger.error("%s; %s", error, "the last rates stay" if self._ready else "nothing is leased yet")
            await asyncio.sleep(_REFRESH_SOON_S)
            return
        self._report(catalogue)
        async with self._writing:
            published = await self._publish(fence, catalogue)
        await asyncio.sleep(_REFRESH_S if published else _TICK_S)

    def _report(self, catalogue: Catalogue) -> None:
        """Log the rows that are left out."""
        place = without_userinfo(str(self.config.sources))
        for row in catalogue.bad[:_MOST_BAD]:
            logger.error("CRAWL_SOURCES=%s: row %d is left out: %s", place, row.number, printable(row.reason, 300))
        if (more := len(catalogue.bad) - _MOST_BAD) > 0:
            logger.error("CRAWL_SOURCES=%s: %d more rows are left out", place, more)

    async def _publish(self, fence: int, catalogue: Catalogue) -> bool:
        """Put the catalogue's rates and hosts into Redis; sources that it has dropped fall to the minimum.

        Those that it has a bad row for keep what they have. False if another has taken the lead in between.
        """
        scripts = self.state.scripts
        spoilt = {row.source for row in catalogue.bad} - catalogue.limits.keys()
        gone = self._limits.keys() - catalogue.limits.keys() - spoilt
        hosts = await source_table.hosts(self.state)
        for chunk in batched(catalogue.limits.items()):
            overrides = await source_table.overrides(self.state, [source for source, _ in chunk])
            rows = []
            for (source, rate), override in zip(chunk, overrides, strict=True):
                self._note_override(source, override, rate)
                rows.append((source, self._in_force(source, rate), rate))
            if not await scripts.set_rates(fence, rows, {}, catalogue.options):
                return False
        for some in batched(catalogue.hosts.items()):
            if not await scripts.set_rates(fence, [], dict(some)):
                return False
        old = {domain for domain, source in hosts.items() if source not in spoilt}
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
        async for sources in self._known_sources():
            overrides = await source_table.overrides(self.state, sources)
            in_force = await source_table.rates_in_force(self.state, sources)
            changes: list[tuple[str, float, float | None]] = []
            for source, override, present in zip(sources, overrides, in_force, strict=True):
                by_size = self._limits.get(source, MINIMUM_RATE)
                self._note_override(source, override, by_size)
                rate = self._in_force(source, by_size)
                if present != rate:
                    changes.append((source, rate, self._limits.get(source)))
            if changes:
                await self.state.scripts.set_rates(fence, changes, {})

    async def _known_sources(self) -> AsyncIterator[list[str]]:
        """Yield the known sources in chunks; more than a tick's worth are continued at the next."""
        seen = 0
        while True:
            self._cursor, found = await source_table.scan_sources(self.state, self._cursor)
            if found:
                yield found
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
                "crawl:override_rate:%s is %r, which is not a rate in requests a second: %g rps by size stays",
                source,
                override[:40],
                by_size,
                extra={"source": source},
            )
        else:
            logger.info(
                "Rate of %s: %g rps by override (%g by size)", source, rate, by_size, extra={"source": source}
            )


async def _read(place: str) -> Catalogue:
    """Read the catalogue in a thread that nobody waits for at the end, and for a minute at most.

    Raises:
        CatalogueError: it cannot be read, or took longer.

    """
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S):
            return await in_thread("catalogue", lambda: read_catalogue(place))
    except TimeoutError:
        raise CatalogueError(f"CRAWL_SOURCES={place} took longer than {_READ_TIMEOUT_S:.0f} s to read") from None
