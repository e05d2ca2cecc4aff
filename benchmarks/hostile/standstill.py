"""How long the reactor of a worker stands still: an add-on for `scrapy crawl`, and what it has written."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import NamedTuple, Self

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings

_LOOK_S = 0.005  # between two looks at the clock
OPTIONS = ("-s", 'ADDONS={"benchmarks.hostile.standstill.Addon": 0}')  # of `scrapy crawl`
FILE = "STANDSTILL_FILE"


class Standstill(NamedTuple):
    """The longest time in which nothing else ran on the reactor, and the most CPU it had meanwhile; seconds.

    On a busy machine the first is also the time that other processes had; the second is the worker's own.
    """

    wall: float
    cpu: float

    @classmethod
    def read(cls, file: Path) -> Self:
        """Return what a worker has written as it closed.

        Raises:
            OSError: it has not.

        """
        return cls(**json.loads(file.read_text()))


STOOD_NEVER = Standstill(0.0, 0.0)


class Addon:
    """Has every worker watched."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Add the extension."""
        settings["EXTENSIONS"][Watch] = 0


class Watch:
    """Looks at the clock all the time, and writes the longest standstill as the worker closes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._longest = Standstill(0.0, 0.0)
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the extension, connected to its signals."""
        one = cls(Path(crawler.settings[FILE]))
        crawler.signals.connect(one.begin, signal=signals.engine_started)
        crawler.signals.connect(one.end, signal=signals.engine_stopped)
        return one

    async def begin(self) -> None:
        """Look from now on."""
        self._task = asyncio.create_task(self._look())

    async def end(self) -> None:
        """Write what was seen."""
        if self._task is not None:
            self._task.cancel()
        self.file.write_text(json.dumps(self._longest._asdict()))

    async def _look(self) -> None:
        while True:
            began, cpu = time.monotonic(), time.thread_time()
            await asyncio.sleep(_LOOK_S)
            stood = Standstill(time.monotonic() - began - _LOOK_S, time.thread_time() - cpu)
            self._longest = Standstill(max(stood.wall, self._longest.wall), max(stood.cpu, self._longest.cpu))
