"""How a command that takes its time says how far it is: a bar on a terminal, and nothing where there is none."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text


class Bar:
    """A bar on stderr, while the block lasts; `shown` says if there is one. `total` None: nobody knows.

    With `unit` None it counts bytes. What is `below` it is shown with it.
    """

    def __init__(self, what: str, total: float | None, unit: str | None = None) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self.shown = sys.stderr.isatty() and not self._console.is_dumb_terminal
        how_far: list[ProgressColumn] = (
            [DownloadColumn(), TransferSpeedColumn()] if unit is None else [MofNCompleteColumn(), TextColumn(unit)]
        )
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            *how_far,
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=self._console,
        )
        self._task = self._progress.add_task(what, total=total, note="")
        self._live = Live(self._progress, console=self._console, redirect_stdout=False)

    def __enter__(self) -> Self:
        if self.shown:
            self._live.start(refresh=True)
            self._console.show_cursor(True)  # else a kill would leave a terminal without
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.shown:
            self._live.stop()

    def update(self, n: float | None = 1) -> None:
        """Go on by `n`."""
        self._progress.advance(self._task, n or 0)

    def at(self, done: float) -> None:
        """Go to `done` of the total."""
        self._progress.update(self._task, completed=done)

    def note(self, text: str) -> None:
        """Say something behind the bar."""
        self._progress.update(self._task, note=text)

    def below(self, renderable: RenderableType) -> None:
        """Show something below the bar, in place of what was there."""
        self._live.update(Group(self._progress, renderable))

    def say(self, line: str) -> None:
        """Print a line on stderr, above the bar."""
        if self.shown:
            self._console.print(Text(line), soft_wrap=True)
        else:
            print(line, file=sys.stderr)
