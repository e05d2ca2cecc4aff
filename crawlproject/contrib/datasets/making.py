"""Makes a dataset of lists of URLs: feeds them, has workers crawl them, and writes what comes, all at once."""

from __future__ import annotations

import argparse
import asyncio
import re
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from crawlproject import cli, config
from crawlproject.commands.events import read_shards
from crawlproject.contrib.datasets.targets import ParquetTarget
from crawlproject.contrib.datasets.workers import Workers
from crawlproject.errors import BadInput, CrawlprojectError
from crawlproject.ingest.feeds import FileFeed
from crawlproject.ingest.seed_rows import Columns
from crawlproject.program import as_called
from crawlproject.screen import Screen
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.state.health import fault_of
from crawlproject.status.progress import Progress
from crawlproject.status.sample import Survey
from crawlproject.status.snapshot import CrawlSample
from crawlproject.status.source_status import said_of_minimum
from crawlproject.streams.streams import dead_letters, newest_entries
from crawlproject.texts import counted, printable

if TYPE_CHECKING:
    from crawlproject.contrib.datasets.dataset import Dataset

_SOON_S = 0.05
_EVERY_S = 1.0  # between two looks
_LINE_S = 10.0  # between two lines where there is no terminal
_GRACE_S = 10.0  # that workers have to end, beyond CRAWL_SHUTDOWN_GRACE
_COUNTED = 10_000  # dead letters whose reasons are counted
_LOOKED_AT = 100  # the newest, while the crawl runs
_REASONS = 5
_PECULIAR = re.compile(r", | \(|: ?b?['\"]")  # what begins what is peculiar to one


class CrawlScreen(Screen):
    """The terminal, on which commands are about the crawl in `namespace`, spelled as the user calls them."""

    def __init__(self, namespace: str) -> None:
        super().__init__()
        self._namespace = namespace

    def say(self, text: str) -> None:
        """Print a text, above the line."""
        super().say(about_crawl(text, self._namespace))

    def show(self, line: str) -> None:
        """Have `line` stand in place of the last one."""
        super().show(about_crawl(line, self._namespace))


def about_crawl(text: str, namespace: str) -> str:
    """Return a text in which each command is about the crawl in `namespace`, spelled as the user calls it."""
    return as_called(text, f"CRAWL_NAMESPACE={shlex.quote(namespace)} ")


class Feeding(threading.Thread):
    """Feeds the lists, behind what was fed before. `begun` is set when they can be read, or there is a `fault`."""

    def __init__(self, settings: Any, names: list[str], columns: Columns, say: Callable[[str], object]) -> None:
        super().__init__(daemon=True)  # it may wait for room
        self.begun = threading.Event()
        self.stopped = threading.Event()
        self.fault: BaseException | None = None
        self._feed: FileFeed | None = None
        self._settings, self._names, self._columns, self._say = settings, names, columns, say

    def run(self) -> None:
        """Feed."""
        try:
            with cli.connected(config.load(self._settings)) as redis:
                self._feed = feed = FileFeed(
                    *(redis.state, redis.run, self._names, self._columns, self._say),
                    waits=lambda _: None,  # workers make room
                )
                try:
                    feed.begin(self._settings, resume=True)
                except BadInput as error:
                    feed.begin(self._settings, resume=False)
                    self._say(f"{error}; feeding all rows again, without images that the dataset already has")
                self.begun.set()
                feed.push(lambda _: None, self.stopped.is_set)
        except BaseException as error:  # the main thread raises it
            self.fault = error
        finally:
            self.begun.set()

    @property
    def rejected(self) -> int:
        """How many lines were no seeds, by now."""
        return self._feed.rejected if self._feed else 0


class Making:
    """One run. `read` is what the events are read with: the options of `scrapy events`."""

    def __init__(
        self,
        settings: Any,
        target: type[ParquetTarget],
        where: str,
        read: argparse.Namespace,
        screen: Screen,
        about: dict[str, str | None],
    ) -> None:
        self.settings, self.screen = settings, screen
        self._target, self._where, self._read, self._about = target, where, read, about
        self._progress = Progress(whole=True)
        self._said_slow = False
        self._failed = 0  # dead letters whose reasons were looked at
        self._said_reasons: set[str] = set()
        self._shown_at = 0.0

    async def run(self, state: State, feeding: Feeding, workers: Workers, *, has_parts: bool) -> dict[str, Any]:
        """Return the summary, when all is written, or at a stop.

        `has_parts`: the dataset was begun before; then its crawl must be there, too.

        Raises:
            CrawlprojectError, OSError: it cannot go on; what has come so far is written.

        """
        if has_parts and not await state.redis.exists(state.keys.totals):
            raise CrawlprojectError(
                f"{self._where} has a dataset, whose crawl this Redis does not know: all images would be fetched "
                "twice; name an empty folder, or set REDIS_URL to the Redis of its crawl"
            )
        ending, self._read.follow = threading.Event(), True
        target = self._target(state, self._where, self._read, self.settings)
        target.about_it = self._about
        sink, own = target.sink(state, ending.is_set), config.load(self.settings)
        is_square = own.thumbnail_mode == "center_crop" and not own.thumbnail_enlarge
        sink.square = own.thumbnail_sizes[0] if is_square else 0
        began, survey, is_whole = time.monotonic(), Survey(state), False
        sample: CrawlSample | None = None
        with cli.stoppable() as stop:
            reading = asyncio.create_task(read_shards({state: sink}, ending, self._read))
            while not (sink.is_open or reading.done() or stop.is_set()):
                await asyncio.wait((reading,), timeout=_SOON_S)
            try:
                if sink.is_open:
                    feeding.start()
                    await asyncio.to_thread(feeding.begun.wait)
                while not (stop.is_set() or reading.done() or feeding.fault):
                    try:
                        is_whole = not feeding.is_alive() and (await state.scripts.idleness()).is_idle
                        if not is_whole:
                            workers.look()
                        sample = await survey.take()
                        await self.tell_why(state, sample)
                        self._show(sample, is_reading=feeding.is_alive())
                    except REDIS_TROUBLE as error:
                        self.screen.show(fault_of(error))
                    if is_whole:
                        break
                    await asyncio.wait((reading,), timeout=_EVERY_S)
            finally:
                feeding.stopped.set()
                await asyncio.to_thread(workers.stop, own.shutdown_grace + _GRACE_S)
                self._read.follow = False  # what there is by now is read to its end
                faults = await reading
        for fault in filter(None, (feeding.fault, *faults)):
            raise fault
        try:
            sample = await survey.take()
        except REDIS_TROUBLE:  # at this moment: all is written
            if sample is None:
                raise
        if is_whole:
            self._show(sample)
        totals = sample.overview.totals
        return {
            "whole": is_whole,
            "seconds": round(time.monotonic() - began, 1),
            "rows": sink.written,
            **{name: totals.get(of, 0) for name, of in _OUTCOMES.items()},
            "failed": sample.overview.dead,
            "tried_again": max(totals.get("failed", 0) - sample.overview.dead, 0),
            "rejected": feeding.rejected,
            "waiting": sample.overview.outstanding + sample.overview.overflow + sample.overview.seeds,
            "reasons": dict((await _reasons(state)).most_common(_REASONS)),
            "slowest": self._progress.slowest(),
            "remarks": [*target.remarks(), *_said_of_smaller(sink, has_parts=has_parts)],
        }

    async def tell_why(self, state: State, sample: CrawlSample) -> None:
        """Say the commonest reason of failures, as soon as there are any, and again when it is another."""
        if sample.overview.dead == self._failed or len(self._said_reasons) == _REASONS:
            return
        self._failed = sample.overview.dead
        newest = (await newest_entries(state, {state.keys.dead: _LOOKED_AT}))[state.keys.dead]
        whole = {_kind_of(fields): _reason_of(fields) for _, fields in newest}
        for kind, _ in Counter(_kind_of(fields) for _, fields in newest).most_common(1):
            if kind not in self._said_reasons:
                self._said_reasons.add(kind)
                self.screen.say(f"failed: {whole[kind]}")

    def _show(self, sample: CrawlSample, *, is_reading: bool = False) -> None:
        slow = said_of_minimum(sample.sources.values(), "--rate")
        if slow and not self._said_slow:
            self._said_slow = True
            self.screen.say(f"slow: {slow}")
        line = self._progress.line(sample)
        if is_reading:  # the count grows
            line = "reading the lists" if line.startswith("0/0 ") else f"{line}, reading the lists"
        if self.screen.is_live:
            self.screen.show(line)
        elif time.monotonic() >= self._shown_at + _LINE_S:
            self._shown_at = time.monotonic()
            self.screen.say(line)


# In the summary, by the totals that they are.
_OUTCOMES = {
    "ok": "thumbnails",
    "gone": "link_rot",
    "duplicates": "duplicates",
    "excluded": "excluded",
}


def _reason_of(fields: Mapping[bytes, bytes]) -> str:
    return printable(fields.get(b"reason", b"").decode(errors="replace"), 500)


def _kind_of(fields: Mapping[bytes, bytes]) -> str:
    """Return the reason of a dead letter, without what is peculiar to it."""
    return _PECULIAR.split(_reason_of(fields))[0][:80]


def _said_of_smaller(sink: Dataset, *, has_parts: bool) -> Iterator[str]:
    """Say how many images of this run are no squares of the size that is meant, if any."""
    if sink.smaller:
        are, them = ("is", "it") if sink.smaller == 1 else ("are", "them")
        when = "in this run, " if has_parts else ""
        yield (
            f"{when}{counted(sink.smaller, 'image')} {are} smaller than {sink.square} x {sink.square}; "
            f"--enlarge enlarges {them}"
        )


async def _reasons(state: State) -> Counter[str]:
    """Return how many dead letters there are for each reason, without what is peculiar to one."""
    found: Counter[str] = Counter()
    async for _, fields in dead_letters(state):
        found[_kind_of(fields)] += 1
        if found.total() >= _COUNTED:
            break
    return found
