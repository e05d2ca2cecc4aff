"""What commands show by rich: tables, and one line of progress, rewritten in place, below all messages."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from crawlproject.texts import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_WIDE = 2000  # columns where no terminal bounds them


def stdout_console() -> Console:
    """Return the terminal at stdout; a file or a pipe is so wide that nothing is cut."""
    from rich.console import Console  # here: rich would slow every command

    is_live = sys.stdout.isatty()
    return Console(
        force_terminal=is_live, width=None if is_live else _WIDE, highlight=False, markup=False, emoji=False
    )


def table(
    rows: Sequence[Mapping[str, str]],
    texts: Collection[str],
    whole: Collection[str] = (),
    styles: Sequence[str] = (),
) -> Table:
    """Return a table of rows, by their columns: `texts`, and numbers. `styles` are those of the rows.

    A narrow terminal cuts texts; numbers, and the texts in `whole`, never.
    """
    from rich.table import Table

    made = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold underline")
    for name in rows[0] if rows else ():
        is_whole = name in whole or name not in texts
        least = max(len(row[name]) for row in rows) if is_whole else None
        made.add_column(name, justify="left" if name in texts else "right", no_wrap=is_whole, min_width=least)
    for row, style in zip(rows, styles or [""] * len(rows), strict=True):
        made.add_row(*map(_in_a_line, row.values()), style=style)
    return made


class Screen:
    """The terminal at stderr. If stderr is a file or a pipe, `is_live` is False, and `show` prints nothing.

    Control characters are replaced, because texts may contain names that strangers chose.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._live = Live(console=self._console, auto_refresh=False)
        self.is_live = self._console.is_interactive and not self._console.is_dumb_terminal

    def say(self, text: str) -> None:
        """Print a text, above the line."""
        self._console.print(_shown(text), soft_wrap=True)

    def show(self, line: str) -> None:
        """Replace the last line by `line`, cut at the width of the terminal."""
        if not self.is_live:
            return
        text = _in_a_line(line)
        if not self._live.is_started:
            self._live.start()
        self._live.update(text, refresh=True)

    def close(self) -> None:
        """Leave the last line where it is."""
        self._live.stop()


def _in_a_line(text: str) -> Text:
    """Return a text of which a line shows as much as it has room for."""
    shown = _shown(text)
    shown.no_wrap, shown.overflow = True, "ellipsis"
    return shown


def _shown(text: str) -> Text:
    from rich.text import Text

    return Text(visible(text))
