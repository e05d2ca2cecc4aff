"""Feeds files of seeds, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from crawlproject.ingest import files, seed_files
from crawlproject.ingest.feeds import Feed, Position, feed_name
from crawlproject.ingest.seed_files import is_stream
from crawlproject.ingest.seed_rows import Columns
from crawlproject.state.client import State
from crawlproject.texts import printable

_BATCH = 1000


class FileFeed:
    """A feed of the files that `names` name; it blocks, and `run` runs a coroutine meanwhile.

    `say` gets a sentence for each line that is no seed; `waits` (default: `say`) gets the reason for a wait. `fed`
    and `rejected` count lines.
    """

    def __init__(
        self,
        state: State,
        run: Callable[[Coroutine[Any, Any, Any]], Any],
        names: Sequence[str],
        columns: Columns,
        say: Callable[[str], object],
        scheme: str = "http",
        waits: Callable[[str], object] | None = None,
    ) -> None:
        self.fed = self.rejected = 0
        self._run, self._names, self._columns = run, names, columns
        self._say, self._scheme = say, scheme
        self._feed = Feed(state, feed_name(names, columns), waits or say)

    def begin(self, settings: Mapping[str, Any], *, resume: bool) -> str:
        """Find the files, and where to begin; return that in words.

        Raises:
            BadInput, OSError: they cannot be fed, or have changed since what is to be resumed.

        """
        found = seed_files.find(self._names, settings)
        self._run(self._feed.begin(resume=resume))
        self._begin = Position(of=len(found) if self._columns.reading.are_fixed else 0)
        if self._feed.position:
            self._begin = Position.of_text(self._feed.position, found)
        self._files = found[: self._begin.of or None]
        self._columns.reading.begin(self._files)
        return self._where()

    def _where(self) -> str:
        begin = self._begin
        if not begin.index and not begin.row:
            return "there is no feed of these files with these options to resume: feeding from the first file"
        if begin.index >= len(self._files):
            return "these files have been fed already" + (
                ": begin the next feed without --resume" if begin.of else ""
            )
        return f"continuing after row {begin.row} of {self._files[begin.index].name}"

    @property
    def size(self) -> int:
        """The bytes of the files that are left."""
        return sum(file.size for file in self._files[self._begin.index :])

    def ignored(self) -> str:
        """Say which columns of the first file are ignored; "" if none are."""
        left = self._files[self._begin.index :]
        if not left or is_stream(left[0].name) or self._columns.reading.columns:
            return ""
        kinds = files.columns_of(left[0])
        named = list(kinds)
        if not self._columns.has_urls(named):
            return ""  # a plain list
        taken = self._columns.of_object(dict.fromkeys(named)) if "json" in kinds.values() else {}
        names = [name for name in self._columns.ignored(left[0].name, named) if name not in taken]
        return f"ignored: {printable(', '.join(names), 500)}" if names else ""

    def push(self, read: Callable[[int], object], stopped: Callable[[], bool] = lambda: False) -> None:
        """Feed what is left, until `stopped`; `read` is told of bytes.

        Raises:
            BadInput, OSError: a file cannot be read; what comes before is fed.

        """
        batch: list[str] = []
        for index, number, seed in self._seeds(read):
            if stopped():
                return
            batch.append(seed)
            if len(batch) >= _BATCH:
                self._put(batch, index, number)
        self._put(batch, len(self._files))

    def _seeds(self, read: Callable[[int], object]) -> Iterator[tuple[int, int, str]]:
        """Yield each seed, with the index of its file and the number of its line."""
        first = self._begin
        for index, file in enumerate(self._files[first.index :], first.index):
            after = first.row if index == first.index else 0
            for line in files.read(file, read, self._scheme, self._columns, after):
                if not self._columns.reading.has(index, line.number):
                    continue
                if line.seed is None:
                    self.rejected += 1
                    self._say(f"{file.name}:{line.number}: {line.reason}")
                else:
                    yield index, line.number, line.seed

    def _put(self, batch: list[str], index: int, row: int = 0) -> None:
        self._run(self._feed.push(batch, Position(index, row, self._begin.of).text(self._files)))
        self.fed += len(batch)
        batch.clear()
