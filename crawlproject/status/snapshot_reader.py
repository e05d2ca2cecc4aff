"""Reads what the crawl is doing for whoever looks on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crawlproject.state.client import State
from crawlproject.state.scripts import Survey
from crawlproject.status import sample as readings
from crawlproject.status.snapshot import Counters, Snapshot, snapshot


class SnapshotReader:
    """Compares each reading with its own last one: never leads, keeps nothing in Redis, and writes no line.

    With `names`, `specific` has those sources alone, whatever their number is; `general` is of the whole crawl.
    """

    def __init__(self, state: State, names: Sequence[str] = ()) -> None:
        self.state = state
        self.names = names
        self._before: Counters | None = None

    async def look(self) -> Snapshot | None:
        """Return what the crawl did since the last look; None at the first one.

        Raises:
            REDIS_TROUBLE: see state/client.py; the next look goes on from the last one that went well.

        """
        surveyed = await readings.survey(self.state, must_lead=False)
        assert isinstance(surveyed, Survey)
        sources = list(dict.fromkeys([*self.names, *surveyed.sources]))
        reading = await readings.read(self.state, surveyed._replace(sources=sources))
        before, self._before = self._before, Counters.of(reading)
        made = None if before is None else snapshot(before, reading)
        if made is None or not self.names:
            return made
        specific = {name: made.specific[name] for name in self.names}
        return replace(made, general=replace(made.general, sources_listed=len(specific)), specific=specific)
