"""Pauses leasing while something that every picture needs is down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from scrapy.crawler import Crawler

from crawlproject.runtime import runtime_of

_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0  # between probes; doubled each time


class Breaker:
    """Pauses leasing from the moment it trips until a probe succeeds.

    `name` is its name in the statistics. `outage` says what is wrong; it is empty while nothing is.
    """

    def __init__(self, name: str, crawler: Crawler | None = None) -> None:
        self.name = name
        self.crawler = crawler
        self.outage = ""
        self._recovery: asyncio.Task[None] | None = None

    def trip(self, outage: str, probe: Callable[[], Awaitable[Exception | None]]) -> None:
        """Pause leasing until `probe` returns None; it is called at longer and longer intervals."""
        if self.outage:
            return
        self.count("down")
        self.outage = outage
        if self.crawler is not None:
            runtime_of(self.crawler).leasing.pause(outage)
        self._recovery = asyncio.create_task(self._recover(probe))

    def close(self) -> None:
        """End the probes."""
        if self._recovery is not None:
            self._recovery.cancel()

    def count(self, what: str) -> None:
        """Add one to a statistic."""
        if self.crawler is not None and self.crawler.stats is not None:
            self.crawler.stats.inc_value(f"{self.name}/{what}")

    async def _recover(self, probe: Callable[[], Awaitable[Exception | None]]) -> None:
        pause = _PAUSE_S
        await asyncio.sleep(pause)
        while await probe() is not None:
            self.count("probes_failed")
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            await asyncio.sleep(pause)
        reason, self.outage = self.outage, ""
        if self.crawler is not None:
            runtime_of(self.crawler).leasing.resume(reason)
