"""The terminal of a long-running command: one line of progress, rewritten in place, below all messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crawlproject.texts import visible

if TYPE_CHECKING:
    from rich.text import Text


class Screen:
    """The terminal at stderr. If stderr is a file or a pipe, `is_live` is False, and `show` prints nothing.

    Control characters are replaced, because texts may contain names that strangers chose.
    """

    def __init__(self) -> None:
        from rich.console import Console  # here: rich would slow every command
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
        text = _shown(line)
        text.no_wrap, text.overflow = True, "ellipsis"
        if not self._live.is_started:
            self._live.start()
        self._live.update(text, refresh=True)

    def close(self) -> None:
        """Leave the last line where it is."""
        self._live.stop()


def _shown(text: str) -> Text:
    from rich.text import Text

    return Text(visible(text))
