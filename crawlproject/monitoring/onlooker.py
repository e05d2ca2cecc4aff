"""Reads what the crawl is doing for whoever looks on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crawlproject.monitoring import reading as readings
from crawlproject.monitoring.snapshot import Counters, Snapshot, snapshot
from crawlproject.store.client import Store
from crawlproject.store.scripts import Survey


class Onlooker:
    """Compares each reading with its own last one: never leads, keeps nothing in Redis, and writes no line.

    With `names`, `specific` has those sources alone, whatever their number is; `general` is of the whole crawl.
    """

    def __init__(self, store: Store, names: Sequence[str] = ()) -> None:
        self.store = store
        self.names = names
        self._before: Counters | None = None

    async def look(self) -> Snapshot | None:
        """Return what the crawl did since the last look; None at the first one.

        Raises:
            REDIS_TROUBLE: see store/client.py; the next look goes on from the last one that went well.

        """
        surveyed = await readings.survey(self.store, must_lead=False)
        assert isinstance(surveyed, Survey)
        sources = list(dict.fromkeys([*self.names, *surveyed.sources]))
        reading = await readings.read(self.store, surveyed._replace(sources=sources))
        before, self._before = self._before, Counters.of(reading)
        made = None if before is None else snapshot(before, reading)
        if made is None or not self.names:
            return made
        specific = {name: made.specific[name] for name in self.names}
        return replace(made, general=replace(made.general, sources_listed=len(specific)), specific=specific)
