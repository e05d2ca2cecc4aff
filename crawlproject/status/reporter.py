"""Tells every five seconds what the crawl is doing: a line, and the snapshot that all else is shown from."""

from __future__ import annotations

import asyncio
import logging
import logging.handlers
import sys

from crawlproject.config import Config
from crawlproject.loops import Loops
from crawlproject.state.client import State
from crawlproject.state.scripts import Survey
from crawlproject.status import sample as readings
from crawlproject.status.snapshot import Counters, Sample, Snapshot, snapshot
from crawlproject.texts import one_line

logger = logging.getLogger(__name__)

INTERVAL = 5.0  # seconds between two lines
_LOOK = 1.0  # seconds at most between two looks at who leads
_FILE_SIZE = 100_000_000  # bytes of a monitor file, at which it becomes FILE.1
_FILES = 5  # that are kept beside it


class LineFile(logging.handlers.RotatingFileHandler):
    """A file of lines, opened for each of them: whoever leads, and whatever rotates it besides, finds it as it is.

    At 100 MB it becomes `FILE.1`, the one before `FILE.2`, up to `FILE.5`.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, maxBytes=_FILE_SIZE, backupCount=_FILES, encoding="utf-8", delay=True)

    def write(self, line: str) -> None:
        """Append a line. Blocks.

        Raises:
            OSError: it cannot be written.

        """
        try:
            self.emit(logging.makeLogRecord({"msg": "%s", "args": (line,)}))
        finally:
            self.close()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Raise what the standard library would print."""
        error = sys.exc_info()[1]
        if error is not None:
            raise error


class Monitor:
    """One in every worker and in `scrapy monitor`; the one who leads writes the line.

    What rates are made of is kept in Redis from one reading to the next: a new leader goes on where the last one
    stopped. `latest_sample` and `latest` are for whoever shows them: of the leader, or with `always` of this
    process even while another leads. None without any.
    """

    def __init__(self, config: Config, state: State, *, always: bool = False) -> None:
        self.state = state
        self.always = always
        self.latest_sample: Sample | None = None
        self.latest: Snapshot | None = None
        self._own: Counters | None = None
        self._file = None if config.monitor_file is None else LineFile(config.monitor_file)
        self._complained = False
        self._loops = Loops(state)

    def start(self) -> None:
        """Begin."""
        self._loops.start(self._step)

    async def stop(self) -> None:
        """Stop."""
        await self._loops.stop()

    async def _step(self) -> None:
        surveyed = await readings.survey(self.state, must_lead=True, every=INTERVAL)
        if isinstance(surveyed, Survey):
            await self._lead(surveyed)
        elif surveyed is not None:
            await asyncio.sleep(min(surveyed, _LOOK))
        else:
            await self._follow()

    async def _lead(self, surveyed: Survey) -> None:
        before = Counters.unpacked(surveyed.kept)
        if (made := await self._look(surveyed, before)) is not None:
            await self._write(one_line(made.as_event()))

    async def _follow(self) -> None:
        """Another leads: it writes the line."""
        if not self.always:
            self.latest = self.latest_sample = self._own = None
            await asyncio.sleep(_LOOK)
            return
        surveyed = await readings.survey(self.state, must_lead=False)
        assert isinstance(surveyed, Survey)
        if self._own is not None and surveyed.now - self._own.at < INTERVAL:
            await asyncio.sleep(_LOOK)
            return
        await self._look(surveyed, self._own, keep=False)

    async def _look(self, surveyed: Survey, before: Counters | None, *, keep: bool = True) -> Snapshot | None:
        """Read, and compare with what was read before."""
        reading = await readings.read(self.state, surveyed)
        self._own = own = Counters.of(reading)
        if keep and not await self.state.scripts.keep_reading(self.state.worker, own.at, own.packed()):
            return None  # the lead was lost meanwhile
        self.latest_sample = reading
        self.latest = None if before is None else snapshot(before, reading)
        return self.latest

    async def _write(self, line: str) -> None:
        if self._file is None:
            logger.info("%s", line)
            return
        try:
            await asyncio.to_thread(self._file.write, line)
            self._complained = False
        except OSError as error:
            if not self._complained:
                logger.error(
                    "CRAWL_MONITOR_FILE=%s cannot be written (%s): lines are lost until it can",
                    self._file.baseFilename,
                    error,
                )
            self._complained = True
