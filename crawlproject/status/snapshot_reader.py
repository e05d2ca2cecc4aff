"""Reads what the crawl is doing, without leading or writing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crawlproject.state.client import State
from crawlproject.status.sample import Survey
from crawlproject.status.snapshot import CrawlSample, Snapshot, snapshot


class SnapshotReader:
    """Compares each sample with its own previous one: never leads, keeps nothing in Redis, and writes no line.

    With `names`, `specific` has only those sources, however many there are; `general` is about the whole crawl.
    """

    def __init__(self, state: State, names: Sequence[str] = ()) -> None:
        self.state = state
        self.names = names
        self._before: CrawlSample | None = None
        self._survey = Survey(state, unread=False)

    async def look(self) -> Snapshot | None:
        """Return what the crawl did since the last call; None at the first one.

        Raises:
            REDIS_TROUBLE: see state/client.py; the next call continues from the last one that succeeded.

        """
        latest = await self._survey.take(names=self.names)
        before, self._before = self._before, latest
        made = None if before is None else snapshot(before, latest)
        if made is None or not self.names:
            return made
        specific = {name: made.specific[name] for name in self.names if name in made.specific}
        return replace(made, general={**made.general, "sources_listed": len(specific)}, specific=specific)
