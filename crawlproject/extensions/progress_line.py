"""Shows on the terminal of a worker how far the crawl is."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from crawlproject.extensions import Extension
from crawlproject.runtime import Loops
from crawlproject.screen import Screen
from crawlproject.state.client import REDIS_TROUBLE
from crawlproject.status.progress import Progress
from crawlproject.status.sample import Survey

EVERY_S = 1.0


class ProgressLine(Extension):
    """Shows a line for all workers together; of several crawlers in a process, the first one does.

    `scrapy crawl` sets `screen`, and has this extension where there is one.
    """

    screen: Screen | None = None
    _shown_by: ProgressLine | None = None

    def begin(self) -> None:
        """Begin to show it."""
        if ProgressLine._shown_by is None:
            ProgressLine._shown_by = self
            first = self.scheduler.state.shards[0]
            self.loops, self._survey, self._progress = Loops(first), Survey(first), Progress()
            self.loops.start(self._step)

    async def spider_closed(self) -> None:
        """Show it for the last time."""
        await super().spider_closed()
        if ProgressLine._shown_by is self and self.screen is not None:
            with suppress(*REDIS_TROUBLE):
                await self._show()
            self.screen.close()

    async def _step(self) -> None:
        await self._show()
        await asyncio.sleep(EVERY_S)

    async def _show(self) -> None:
        assert self.screen is not None
        sample = await self._survey.take()
        self.screen.show(self._progress.line(sample))
