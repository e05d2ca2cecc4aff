"""Events as JSON lines of a file, each exactly once."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from crawlproject.errors import CrawlprojectError
from crawlproject.store.keys import Keys
from crawlproject.texts import one_line

_BATCH = 1000


class EventFile:
    """Appends the events of all streams to a file, a JSON object a line with the stream's name as `event`.

    Beside the file lies `<file>.position`: how long the file is, and the last entry of each stream in it.
    It is replaced after the lines are on disk. Whatever is found behind that length at the next start was
    written by a process that died in between; it is cut off, and read from the stream again. So every event
    is there once. The position stands in Redis, too, where it keeps unread entries from being trimmed.
    """

    def __init__(self, path: Path, client: redis.Redis, keys: Keys) -> None:
        self.path = path.resolve()
        self.client = client
        self.keys = keys
        self.position_path = self.path.with_name(self.path.name + ".position")
        self.reader = f"{socket.gethostname()}:{self.path}"
        self.offset = 0
        self.skipped = 0  # entries that are no events: not written by us
        self.last = dict.fromkeys(keys.streams, "0-0")

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
            self._announce()
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

    def drain(self, block: float = 0.0) -> int:
        """Append what is new, and return the number of events; wait up to `block` seconds for the first."""
        written = 0
        while True:
            answer = self.client.xread(
                {stream: self.last[stream] for stream in self.keys.streams},
                count=_BATCH,
                block=int(block * 1000) or None,
            )
            entries = list(_entries(answer))
            if not entries:
                return written
            self._append(entries)
            written += len(entries)
            block = 0.0

    def _append(self, entries: list[tuple[str, str, bytes | None]]) -> None:
        for stream, at, event in entries:
            self.last[stream] = at
            if (line := _line(stream.rpartition(":")[2], event)) is None:
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
        self._announce()

    def _is_in_place(self) -> bool:
        """Tell whether the file that is written is still the one of that name."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False

    def forget(self) -> None:
        """Take this reader's position out of Redis, so that nothing is kept, and no crawl pauses, for it."""
        self.client.hdel(self.keys.readers, *(f"{self.reader}\n{stream}" for stream in self.last))

    def _announce(self) -> None:
        """Tell Redis what need not be kept for this reader."""
        self.client.hset(
            self.keys.readers,
            mapping={f"{self.reader}\n{stream}": at for stream, at in self.last.items()},
        )


def _line(name: str, event: bytes | None) -> bytes | None:
    """Return the line of an event, None if it is not the one JSON object that it should be."""
    try:
        data = json.loads(event or b"")
        if isinstance(data, dict) and "event" not in data:
            return one_line({"event": name, **data}).encode() + b"\n"
    except (ValueError, RecursionError):
        pass
    return None


def _entries(answer: Any) -> Iterator[tuple[str, str, bytes | None]]:
    """Yield (stream, id, JSON) of an XREAD's answer: a map of pages in RESP3, a list of pairs in RESP2."""
    pairs = answer.items() if isinstance(answer, dict) else answer or ()
    for stream, page in pairs:
        entries = page[0] if page and isinstance(page[0], list) else page
        for at, fields in entries:
            yield stream.decode(), at.decode(), fields.get(b"event")
