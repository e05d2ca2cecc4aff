"""The crawl, live on a terminal: what `scrapy top` shows until it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from crawlproject.state.client import REDIS_TROUBLE
from crawlproject.state.health import fault_of, plain
from crawlproject.status.snapshot import Snapshot
from crawlproject.status.snapshot_reader import SnapshotReader
from crawlproject.terminal.table import ALARM, NamedSource, cut, header, ordered, sources_table
from crawlproject.texts import printable

_FIRST_S = 1.0  # at most, between the first two samples
_AGAIN_S = 1.0  # between two attempts while Redis fails
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_RATES = 30  # of the sparkline


class View:
    """What is shown, as rich renders it: the sources `only`, or all; `cut_off` at the terminal's height."""

    def __init__(self, title: str, sort: str, only: Sequence[str], *, cut_off: bool) -> None:
        self.title = title
        self.sort = sort
        self.only = only
        self.cut_off = cut_off
        self.fault = ""
        self.snapshot: Snapshot | None = None
        self._rates: deque[float] = deque(maxlen=_RATES)
        self._read = 0.0

    def show(self, made: Snapshot) -> None:
        """Show a new snapshot."""
        self.snapshot = made
        self._rates.append(made.general.processing_rate)
        self._read = time.monotonic()
        self.fault = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        lines = [Text(self._head())]
        if self.fault:
            lines.append(Text(printable(self.fault, 500), ALARM))
        if self.snapshot is not None:
            lines += header(self.snapshot, self._rates, width)
        lines = [part for line in lines for part in line.wrap(console, width)]
        yield from lines
        if self.snapshot is None:
            return
        rows = ordered(self.snapshot.specific, self.sort)
        shown: Sequence[NamedSource] = rows
        if self.cut_off:
            room = options.max_height - len(lines) - 2  # the table's head, and the last line
            shown = cut(rows, max(room, 0), self.sort)
        yield sources_table(shown, width)
        general = self.snapshot.general
        if (more := (len(rows) if self.only else max(general.sources, len(rows))) - len(shown)) > 0:
            yield Text(f"and {more} more")

    def _head(self) -> str:
        if self.snapshot is None:
            return f"{self.title}  reading ..."
        age = time.monotonic() - self._read
        moment = f"{self.snapshot.time[11:19]} UTC, over {self.snapshot.interval_s:.3g} s"
        return f"{self.title}  {moment}" + (f", {age:.0f} s ago" if self.fault else "")


async def watch(snapshot_reader: SnapshotReader, view: View, interval: float) -> None:
    """Show `view` on the terminal, with a sample every `interval` seconds, until q, Ctrl-C, SIGTERM or SIGHUP.

    However it ends, the terminal is restored. While Redis fails, the last sample stays on the screen.
    """
    loop, left = asyncio.get_running_loop(), asyncio.Event()
    for number in _ENDS:
        loop.add_signal_handler(number, left.set)
    with _Terminal(view, left.set) as terminal:
        loop.add_signal_handler(signal.SIGWINCH, terminal.draw)
        loop.add_signal_handler(signal.SIGTSTP, terminal.suspend)
        tasks = {
            asyncio.create_task(_look(snapshot_reader, view, interval, terminal.draw)),
            asyncio.create_task(left.wait()),
        }
        ended, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        while others:  # more than once: redis-py can swallow a cancellation on Python 3.11
            for task in others:
                task.cancel()
            _, others = await asyncio.wait(others, timeout=0.1)
    for task in ended:
        task.result()  # a bug is raised where it can be read


async def _look(snapshot_reader: SnapshotReader, view: View, interval: float, draw: Callable[[], None]) -> None:
    while True:
        wait = interval if view.snapshot is not None else min(interval, _FIRST_S)
        try:
            if (made := await snapshot_reader.look()) is not None:
                view.show(made)
        except REDIS_TROUBLE as error:
            fault, detail = fault_of(error), plain(error)
            view.fault = fault if detail in fault else f"{fault} ({detail})"
            wait = _AGAIN_S
        draw()
        await asyncio.sleep(wait)


class _Terminal:
    """The terminal, while a view fills it; keys arrive as they are pressed, and are not echoed."""

    def __init__(self, view: View, leave: Callable[[], None]) -> None:
        self._live = Live(
            view,
            console=Console(force_terminal=True, highlight=False),
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._leave = leave
        self._keys = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        try:
            self._take()
        except BaseException:
            self._give_back()
            raise
        if self._keys is not None:
            asyncio.get_running_loop().add_reader(self._keys, self._pressed)
        return self

    def __exit__(self, *_: object) -> None:
        if self._keys is not None:
            asyncio.get_running_loop().remove_reader(self._keys)
        self._give_back()

    def draw(self) -> None:
        """Show the view as it is now."""
        self._live.refresh()

    def suspend(self) -> None:
        """Leave the terminal to the shell (Ctrl-Z) until this process is resumed."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()

    def _take(self) -> None:
        if self._keys is not None:
            self._before = termios.tcgetattr(self._keys)
            tty.setcbreak(self._keys, termios.TCSANOW)
        self._live.start(refresh=True)

    def _give_back(self) -> None:
        try:
            self._live.stop()
        finally:
            if self._keys is not None and self._before:
                with suppress(termios.error):  # the terminal is gone
                    termios.tcsetattr(self._keys, termios.TCSANOW, self._before)

    def _pressed(self) -> None:
        assert self._keys is not None
        try:
            keys = os.read(self._keys, 1024)
        except OSError:  # the terminal is gone
            keys = b""
        if not keys or b"q" in keys.lower():
            self._leave()
