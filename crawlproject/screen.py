"""The terminal of a command that runs on: a line of progress, rewritten in place, below what it has said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crawlproject.texts import visible

if TYPE_CHECKING:
    from rich.text import Text


class Screen:
    """Stderr. Where that is no terminal, `is_live` is False, and a line is not rewritten.

    Texts are shown as they are, without what a terminal obeys: names in them are strangers'.
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
        """Have `line` stand in place of the last one, cut off where the terminal ends."""
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
