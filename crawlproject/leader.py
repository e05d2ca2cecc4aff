"""The leader: one worker sets the pace of all, and says how fast each source may be crawled."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import closing, suppress

from crawlproject import config
from crawlproject.errors import CatalogueError
from crawlproject.exclusions import ExclusionList
from crawlproject.frontier.audit import Audit
from crawlproject.program import as_called
from crawlproject.runtime import Loops
from crawlproject.sources.catalogue import MOST_BAD, Catalogue, Row
from crawlproject.sources.catalogue_reader import read_catalogue
from crawlproject.sources.rates import MINIMUM_RATE, Limit, limit_of, row_text
from crawlproject.state import source_table
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.state.over_shards import shown
from crawlproject.texts import printable, without_secrets
from crawlproject.threads import in_thread

logger = logging.getLogger(__name__)

_TICK_S = 1.0
_EXCLUSIONS_S = 0.5  # between two looks at what is excluded
_REFRESH_S = 1800.0  # between two readings of the catalogue
_REFRESH_SOON_S = 30.0  # after one that failed
_READ_TIMEOUT_S = 600.0  # for one reading
_PAGE = 1000  # sources or domains that are compared at once
_WATCHES_A_TICK = 4  # calls, each of which looks at 50 sources of each set
_UNREAD_S = 60.0  # between two looks for keys of operators that nothing reads
_NAMED = 5  # of them, in a warning
_MORE = 2  # answer of such a call: it has not looked at all
_SOURCES_A_TICK = 1_000  # looked at for overrides; those with an override are looked at in each tick

_Change = tuple[str, Limit, float | None]  # a source, its limit in force, its rate by size


class Leader:
    """In every worker, and in `scrapy monitor`: takes part in the election of a shard's leader.

    One at a time leads, by a lock in Redis that outlives it by 5 s. The leader renews the pulse each second,
    without which no slot is granted. It reads the catalogue, and sets each source's rate: the operator's override,
    else by size, else the minimum. When the catalogue cannot be read the last rates stay. What it writes carries
    its fence number, so that a leader that slept through its replacement changes nothing.

    Of the sources of other shards it writes what says which requests belong to them, and nothing else: so each
    shard knows by itself where a request goes.
    """

    def __init__(self, settings: config.Config, state: State) -> None:
        self.config = settings
        self.state = state
        self._fence: int | None = None
        self._has_rates = False
        self.exclusions = ExclusionList(settings.exclude)
        self._overridden: dict[str, bytes] = {}
        self._cursor = 0
        self._writing = asyncio.Lock()  # held from the comparison of rates until those that differ are written
        self._paused = ""
        self._unread: set[str] = set()  # keys that were warned of
        self._unread_cursor = 0
        self._loops = Loops(state)

    def start(self) -> None:
        """Begin to stand for the lead."""
        self._loops.start(
            self._lead, self._rule, self._keep_catalogue, self._keep_exclusions, self._warn_of_unread
        )
        self._loops.start(Audit(self.state, lambda: self._fence is not None).step)

    async def stop(self) -> None:
        """Stop, and leave the lead to another at once."""
        await self._loops.stop()
        try:
            await self.state.scripts.resign(self.state.worker_id)
        except REDIS_TROUBLE as error:
            self.state.failed(error)

    @property
    def _ready(self) -> bool:
        """Whether requests may go out: there are rates to rule by, and what the file excludes is excluded."""
        return self._has_rates and self.exclusions.is_published

    async def _lead(self) -> None:
        """Renew lead and pulse; nothing else here, so that neither ever waits for a large catalogue."""
        fence = await self.state.scripts.lead(self.state.worker_id, ready=self._ready)
        if fence is None:
            self._fence, self._has_rates = None, False
        elif fence != self._fence:
            of = "" if self.state.count == 1 else f" of shard {self.state.number}"
            logger.info("Elected leader%s (term %d)", of, fence)
            await self._take_over()
            self._fence = fence
        await asyncio.sleep(_TICK_S)

    async def _rule(self) -> None:
        """While this worker leads: set the rates that have changed, and keep the streams within bounds."""
        await asyncio.sleep(_TICK_S)
        fence = self._fence
        if fence is None:
            return
        await self._follow_overrides(fence)
        for _ in range(_WATCHES_A_TICK):
            if await self.state.scripts.watch(fence) < _MORE:
                break
        maxlen, drop = self.state.bounds.stream_maxlen, self.config.events_unread == "drop"
        reason, dropped = await self.state.scripts.trim(fence, maxlen=maxlen, drop=drop)
        if dropped:
            logger.warning("%d events were dropped unread (CRAWL_EVENTS_UNREAD=drop)", dropped)
        if reason != self._paused:
            self._paused = reason
            if reason:
                of, part = ("", "") if self.state.count == 1 else (f" of {shown(self.state)}", "its part of ")
                logger.warning("Unread events%s have reached %sCRAWL_STREAM_MAXLEN: %s", of, part, reason)

    async def _take_over(self) -> None:
        """Begin with the rates of the last catalogue that a leader could read."""
        self._overridden, self._cursor = {}, 0
        self.exclusions.begin()
        # Without any rates to rule by there is no pulse, unless none are expected.
        if self.config.sources is None or await source_table.has_rates(self.state):
            await self._begin()

    async def _begin(self) -> None:
        """Let the pulse beat, as far as rates matter: there are some to rule by."""
        self._has_rates = True
        await self.state.scripts.lead(self.state.worker_id, ready=self._ready)

    async def _keep_exclusions(self) -> None:
        """While this worker leads: follow CRAWL_EXCLUDE."""
        fence = self._fence
        if fence is None:
            await asyncio.sleep(0.1)
            return
        was_published = self.exclusions.is_published
        await self.exclusions.follow_file(self.state, fence)
        if self.exclusions.is_published and not was_published:
            await self.state.scripts.lead(self.state.worker_id, ready=self._ready)
        await asyncio.sleep(_EXCLUSIONS_S)

    async def _warn_of_unread(self) -> None:
        """While this worker leads: say once of each key of an operator that nothing reads which one is meant."""
        await asyncio.sleep(_UNREAD_S)
        if self._fence is None:
            return
        keys = self.state.keys
        self._unread_cursor, sources = await source_table.scan(self.state, keys.rates, self._unread_cursor)
        found = await source_table.unread_keys(self.state, list(sources))
        new = [key for key in found if key not in self._unread]
        self._unread.update(new)
        if new:
            named = [f"{key} (meant: {found[key][0]}, or {found[key][1]})" for key in new[:_NAMED]]
            more = f", and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
            logger.warning(as_called(f"Nothing reads these keys: {', '.join(named)}{more}"))

    # Catalogue

    async def _keep_catalogue(self) -> None:
        """Read the catalogue every half hour while this worker leads.

        By the clock, so that the leaders of several shards do so together, and know the same again soon.
        """
        fence = self._fence
        if fence is None or self.config.sources is None:
            await asyncio.sleep(0.1)
            return
        try:
            with closing(await _read(self.config.sources)) as catalogue:
                self._report(catalogue)
                published = await self._publish(fence, catalogue)
        except CatalogueError as error:
            logger.error("%s; %s", error, "the last rates stay" if self._has_rates else "nothing is leased yet")
            await asyncio.sleep(_REFRESH_SOON_S)
            return
        await self._rest(_REFRESH_S - time.time() % _REFRESH_S if published else _TICK_S)

    async def _rest(self, seconds: float) -> None:
        """Wait until the next reading, or until somebody has deleted what the last one has written."""
        written = await source_table.count_rows(self.state)
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while loop.time() < ends:
            await asyncio.sleep(min(_TICK_S, max(ends - loop.time(), 0.0)))
            with suppress(*REDIS_TROUBLE):
                held = await source_table.count_rows(self.state)
                if any(now < before for now, before in zip(held, written, strict=True)):
                    logger.warning("Somebody has deleted what Redis holds of the catalogue: it is read again")
                    return

    def _report(self, catalogue: Catalogue) -> None:
        """Log the rows that are left out."""
        place = without_secrets(str(self.config.sources))
        for row in catalogue.bad:
            logger.error("CRAWL_SOURCES=%s: row %d is left out: %s", place, row.number, printable(row.reason, 300))
        if (more := catalogue.left_out - MOST_BAD) > 0:
            logger.error("CRAWL_SOURCES=%s: %d more rows are left out", place, more)

    async def _publish(self, fence: int, catalogue: Catalogue) -> bool:
        """Put what has changed in the catalogue into Redis; sources that it has dropped fall to the minimum.

        Those that it has a bad row for keep what they have. False if another has taken the lead in between.
        """
        for rows in catalogue.rows(_PAGE):
            async with self._writing:
                changes: list[_Change] = []
                stored = await source_table.stored(self.state, [row.source for row in rows])
                for row, present in zip(rows, stored, strict=True):
                    is_own = self.state.shard_for(row.source) is self.state
                    limit = self._in_force(row.source, present.override, row.rate) if is_own else Limit(row.rate)
                    wanted = row_text(row.rate, self._claims(row), row.options)
                    if wanted.encode() != present.row or (is_own and str(limit).encode() != present.limit):
                        changes.append((row.source, limit, row.rate))
                options = {row.source: row.options for row in rows}
                claims = {row.source: self._claims(row) for row in rows}
                if not await self.state.scripts.set_rates(fence, changes, {}, options, claims):
                    return False
        for hosts in catalogue.hosts(_PAGE):
            before = await source_table.sources_of_domains(self.state, list(hosts))
            moved = [item for item, source in zip(hosts.items(), before, strict=True) if item[1] != source]
            if not await self.state.scripts.set_rates(fence, [], dict(moved)):
                return False
        gone = await self._forget(fence, catalogue)
        if gone is None:
            return False
        await self._begin()
        logger.info(
            "Catalogue read%s: %d sources, %d no longer in it, %d rows left out",
            "" if self.state.count == 1 else f" for shard {self.state.number}",
            len(catalogue),
            gone,
            catalogue.left_out,
        )
        return True

    async def _forget(self, fence: int, catalogue: Catalogue) -> int | None:
        """Take out what the catalogue no longer names; return how many sources, None if another leads by now."""
        count, cursor, more = 0, 0, True
        while more:
            cursor, sources = await source_table.scan(self.state, self.state.keys.catalogue, cursor)
            async with self._writing:
                gone = catalogue.without_sources(sources)
                stored = await source_table.stored(self.state, gone) if gone else []
                changes = [
                    (source, self._in_force(source, present.override, MINIMUM_RATE), None)
                    for source, present in zip(gone, stored, strict=True)
                ]
                # The rates first: should Redis fail in between, the next reading finds these sources once more.
                if not await self.state.scripts.set_rates(fence, changes, {}):
                    return None
                if gone and not await self.state.scripts.forget(fence, gone, []):
                    return None
            count, more = count + len(gone), cursor != 0
        more = True
        while more:
            cursor, hosts = await source_table.scan(self.state, self.state.keys.hosts, cursor)
            domains = catalogue.without_hosts(hosts)
            if domains and not await self.state.scripts.forget(fence, [], domains):
                return None
            more = cursor != 0
        return count

    def _claims(self, row: Row) -> str:
        """Return the domains that a row is bound to, "" when it is believed on any."""
        return row.domains if row.has_hosts or self.config.source_trust == "hosts" else ""

    # Rates

    async def _follow_overrides(self, fence: int) -> None:
        """Compare rates in force with what they should be, and write the differences.

        The sources that had an override are looked at first, then some of the others in turn. A new override of a
        source that is crawled is noticed by the function `lease`, too.
        """
        overridden = list(self._overridden)
        for first in range(0, len(overridden), _PAGE):
            await self._compare(fence, overridden[first : first + _PAGE])
        seen = 0
        while True:
            self._cursor, found = await source_table.scan(self.state, self.state.keys.rates, self._cursor)
            seen += len(found)
            if found:
                await self._compare(fence, list(found))
            if self._cursor == 0 or seen >= _SOURCES_A_TICK:
                return

    async def _compare(self, fence: int, sources: list[str]) -> None:
        async with self._writing:
            changes: list[_Change] = []
            stored = await source_table.stored(self.state, sources)
            for source, present in zip(sources, stored, strict=True):
                if self.state.shard_for(source) is not self.state:  # one of a request that waits to be forwarded
                    continue
                by_size = present.by_size
                limit = self._in_force(source, present.override, MINIMUM_RATE if by_size is None else by_size)
                if present.limit is None or limit_of(present.limit) != limit:
                    changes.append((source, limit, None))
            await self.state.scripts.set_rates(fence, changes, {})

    def _in_force(self, source: str, override: bytes | None, by_size: float) -> Limit:
        """Return the limit that a source should have, and note its override; the audit trail tells of changes."""
        limit = None if override is None else limit_of(override)
        if override is None:
            self._overridden.pop(source, None)
        elif override != self._overridden.get(source):
            self._overridden[source] = override
            if limit is None:
                logger.error(
                    "%s is %r, which is not a rate in requests a second: %g rps by size stays",
                    self.state.keys.override_rate_of + source,
                    override[:40],
                    by_size,
                    extra={"source": source},
                )
        return limit or Limit(by_size)


async def _read(place: str) -> Catalogue:
    """Read the catalogue in a thread that nobody waits for at the end, for `_READ_TIMEOUT_S` at most.

    Raises:
        CatalogueError: it cannot be read, or took longer.

    """
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S):
            return await in_thread("catalogue", lambda: read_catalogue(place))
    except TimeoutError:
        raise CatalogueError(f"CRAWL_SOURCES={place} took longer than {_READ_TIMEOUT_S:.0f} s to read") from None
