"""Events as JSON lines of a file, each exactly once."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crawlproject.errors import CrawlprojectError
from crawlproject.state.client import BlockingState
from crawlproject.state.streams import Entry, StreamReader, event_of
from crawlproject.texts import one_line


class EventFile:
    """Appends the events of all streams to a file, a JSON object a line with the stream's name as `event`.

    Beside the file lies `<file>.position`: how long the file is, and the last entry of each stream in it.
    It is replaced after the lines are on disk. Whatever is found behind that length at the next start was
    written by a process that died in between; it is cut off, and read from the stream again. So every event
    is there once. The position stands in Redis, too, where it keeps unread entries from being trimmed.
    """

    def __init__(self, path: Path, state: BlockingState) -> None:
        self.path = path.resolve()
        self.position_path = self.path.with_name(self.path.name + ".position")
        self.streams = StreamReader(state, f"{socket.gethostname()}:{self.path}")
        self.offset = 0
        self.skipped = 0  # entries that are no events: not written by us
        self.last = self.streams.last

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the file: for one process at a time, cut to its last known length.

        Raises:
            CrawlprojectError: another process writes it, or it was not written by `scrapy events`.

        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as self._file:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CrawlprojectError(f"another scrapy events writes {self.path}") from None
            self._resume()
            self.streams.announce()
            yield

    def _resume(self) -> None:
        length = self._file.seek(0, os.SEEK_END)
        if self.position_path.exists():
            self.offset, last = self._position()
            self.last |= {name: at for name, at in last.items() if name in self.last}
        elif length:
            raise CrawlprojectError(
                f"{self.path} is there, but not {self.position_path.name} that tells what it holds: "
                "name another file"
            )
        if length < self.offset:
            raise CrawlprojectError(
                f"{self.path} is shorter than when it was last written ({length} of {self.offset} bytes): "
                f"restore it, or remove it and {self.position_path.name} to read all events anew"
            )
        self._file.truncate(self.offset)

    def _position(self) -> tuple[int, dict[str, str]]:
        try:
            position = json.loads(self.position_path.read_text())
            return int(position["offset"]), dict(position["last"])
        except (KeyError, TypeError, ValueError):
            raise CrawlprojectError(
                f"{self.position_path} was not written by scrapy events: restore it, or name another file"
            ) from None

    def drain(self, block_s: float = 0.0) -> int:
        """Append what is new, and return the number of events; wait up to `block_s` for the first."""
        written = 0
        while True:
            entries = self.streams.read(block_s)
            if not entries:
                return written
            self._append(entries)
            written += len(entries)
            block_s = 0.0

    def _append(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.last[entry.stream] = entry.id
            if (line := _line(entry)) is None:
                self.skipped += 1
            else:
                self.offset += self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())
        if not self._is_in_place():
            raise CrawlprojectError(
                f"{self.path} was removed, renamed or replaced while it was written: put it back as it was, "
                "or name another file to read all events that are kept"
            )
        part = self.position_path.with_name(self.position_path.name + ".part")
        with part.open("w") as file:
            json.dump({"offset": self.offset, "last": self.last}, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.position_path)
        self.streams.announce()

    def _is_in_place(self) -> bool:
        """Tell whether the file that is written is still the one of that name."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False

    def forget(self) -> None:
        """Give the file up: keep no events for it."""
        self.streams.forget()


def _line(entry: Entry) -> bytes | None:
    """Return the line of an event, None if the entry is not one."""
    event = event_of(entry)
    try:
        return None if event is None else one_line({"event": entry.name, **event}).encode() + b"\n"
    except RecursionError:
        return None
