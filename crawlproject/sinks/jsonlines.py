"""Events as JSON lines of a file, each exactly once."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from redis import RedisError

from crawlproject.errors import CrawlprojectError
from crawlproject.sinks.entries import event_of
from crawlproject.state.client import BlockingState
from crawlproject.state.readers import START, Overtaken, StreamReader, is_behind, is_entry_id
from crawlproject.state.streams import EventEntry
from crawlproject.texts import one_line, scrapy_command

_LONGEST_NAME = 80  # characters of the file's name in that of its reader


class _Position(NamedTuple):
    """The content of `.position` beside a file: whose the file is, and what it holds."""

    offset: int  # length of the file, in bytes
    last: dict[str, str]  # the last entry in it, by stream
    id: str  # of the file, wherever it is
    reader: str  # the name under which it was written

    @property
    def is_blank(self) -> bool:
        """Whether nothing has been read so far."""
        return self.offset == 0 and all(at == START for at in self.last.values())


class _Batch(NamedTuple):
    """Events that are on disk, and that Redis may not have noted yet."""

    before: _Position  # where the file stood without them
    events: int
    skipped: int


class AppendedFile:
    """A file of events that one process at a time appends to, with `.position` beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.position_path = self.path.with_name(self.path.name + ".position")
        self.written = 0  # events
        self.skipped = 0  # entries that are not events: not written by us
        self.remarks: list[str] = []  # notes for the operator

    @contextmanager
    def _held(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as self._file:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CrawlprojectError(
                    f"another scrapy events is writing to {self.path}: stop it, or name another file"
                ) from None
            if not self.position_path.exists() and self._file.seek(0, os.SEEK_END):
                raise CrawlprojectError(
                    f"{self.path} has content, but {self.position_path.name}, which says what of it is written, "
                    "is missing: restore that, or name another file"
                )
            yield

    def _cut(self, known: int, reader: str) -> None:
        """Cut off what is behind a length that is known."""
        length = self._file.seek(0, os.SEEK_END)
        if length < known:
            raise CrawlprojectError(
                f"{self.path} is {length} bytes long, but {known} bytes were written to it: restore it; or "
                f"remove it and {self.position_path.name} to begin with all events that are still kept, and then "
                f"{scrapy_command('events', f'--forget={reader}')}"
            )
        self._file.truncate(known)

    def _check_in_place(self) -> None:
        """Check that the file that is written is still the one of that name."""
        with suppress(FileNotFoundError):
            if os.path.samestat(self.path.stat(), os.fstat(self._file.fileno())):
                return
        raise CrawlprojectError(
            f"{self.path} was removed, renamed or replaced while it was being written: put it back as it was, "
            "or name another file to begin with all events that are still kept"
        )

    def _sync(self) -> None:
        """Have the lines on disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._check_in_place()

    def _remark_former(self, former: str) -> None:
        self.remarks.append(
            f"{self.path.name} was written by reader {former} until now, and events are still kept for that "
            f"one; to give it up: {scrapy_command('events', f'--forget={former}')}"
        )

    def _remark_further(self, reader: str, is_other: bool) -> None:
        """Say that a reader has read further: into other files, or into a newer copy of this one."""
        file = self.path.name
        remark = f"{file} is an older copy: what reader {reader} has read since is read again"
        if is_other:
            remark = f"{file} continues after the events that reader {reader} has already written to other files"
        if remark not in self.remarks:
            self.remarks.append(remark)


def write_synced(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON, on disk when this returns."""
    with path.open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())


def replace_synced(part: Path, path: Path) -> None:
    """Have a file replace another, on disk when this returns."""
    part.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Sync the names in a folder to disk."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class EventFile(AppendedFile):
    """Appends the events of all streams to a file, a JSON object a line with the stream's name as `event`.

    Beside the file lies `<file>.position`: how long the file is, the last entry of each stream in it, the file's
    id, and the name of its reader. A batch of events goes in these steps:

    1. The lines are written, and synced to disk.
    2. `<file>.position.part` is written, and synced.
    3. Redis notes the reader's position and the length of the file, by its id, if this process still has the
       reader's lease. From here on they are this file's.
    4. `.part` replaces `.position`.

    A process that starts and finds a `.part` looks in Redis whether the third step was done, and does the fourth,
    or leaves it. What is then found behind the known length was written by a process that died before the third:
    it is cut off, and read from the stream again. So every event is there once; and once in all the files of one
    reader, if there are several. The position in Redis keeps unread entries from being trimmed, too.
    """

    def __init__(
        self,
        path: Path,
        state: BlockingState,
        name: str | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(path)
        self.part_path = self.path.with_name(self.position_path.name + ".part")
        self._state = state
        self._name = name
        self._stopping = stopping
        self._unsettled: _Batch | None = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the file and the lease of its reader: one process at a time; cut the file to its last known length.

        Raises:
            CrawlprojectError: another process writes the file, or it was not written by `scrapy events`.
            ReaderTaken: another process reads under the same name.

        """
        with self._held():
            before = self._read(self.position_path) if self.position_path.exists() else None
            self._begin(before)
            positions, length = self.streams.take()
            try:
                self._resume(before, positions, length)
                yield
            finally:
                with suppress(RedisError):  # it ends by itself
                    self.streams.give_back()

    # The position

    def _begin(self, before: _Position | None) -> None:
        """Choose the file's id and the reader's name, and write them to disk before Redis gets them."""
        self._id = before.id if before else secrets.token_hex(4)
        name = self._name or (before.reader if before else "") or default_name(self._state, self.path, self._id)
        self.streams = StreamReader(self._state, name, str(self.path), self._id)
        self.last = self.streams.last
        self.offset = 0
        if before is not None:
            self.offset = before.offset
            self.last |= {stream: at for stream, at in before.last.items() if stream in self.last}
        if before is None:
            self._write_part()
            self._replace()

    def _resume(self, before: _Position | None, stood: Mapping[str, str], noted: int | None) -> None:
        """Go on from where this file ends: cut off what is not settled, and tell Redis.

        `stood` and `noted` are from Redis: where the reader stands, and how long the file was then.
        """
        former = before.reader if before is not None else self.streams.name
        self._settle_part(noted if former == self.streams.name else self.streams.noted_length(former))
        self._cut(self.offset, self.streams.name)
        self._go_on_from(stood, noted)
        if former != self.streams.name and not self._position().is_blank:
            self._remark_former(former)
        self._write_part()
        self._replace()
        self.streams.note(self.offset)

    def _settle_part(self, noted: int | None) -> None:
        """Let `.part` replace `.position` if Redis had noted what it says before a process died."""
        if not self.part_path.exists():
            return
        with suppress(CrawlprojectError):  # half written: then Redis had not
            part = self._read(self.part_path)
            if part.id == self._id and part.offset == noted and part.offset >= self.offset:
                self.offset = part.offset
                self.last |= {stream: at for stream, at in part.last.items() if stream in self.last}
                self._replace()

    def _go_on_from(self, stood: Mapping[str, str], noted: int | None) -> None:
        """Let a file go on after what its reader has read into others, and be complete otherwise."""
        behind = {stream: at for stream, at in stood.items() if is_behind(self.last[stream], at)}
        if not behind:
            return
        is_other = self._position().is_blank or noted == self.offset
        if is_other:
            self.last |= behind
        self._remark_further(self.streams.name, is_other)

    def _position(self) -> _Position:
        return _Position(self.offset, dict(self.last), self._id, self.streams.name)

    def _read(self, path: Path) -> _Position:
        try:
            found = json.loads(path.read_text())
            position = _Position(int(found["offset"]), dict(found["last"]), str(found["id"]), str(found["reader"]))
            if position.offset < 0 or not all(is_entry_id(at) for at in position.last.values()):
                raise ValueError
        except (AttributeError, KeyError, TypeError, ValueError):
            raise CrawlprojectError(
                f"{path} was not written by scrapy events: restore it, or name another file"
            ) from None
        streams = self._state.keys.streams
        if position.last and not set(streams) & position.last.keys():
            raise CrawlprojectError(
                f"{self.path} holds the events of another namespace ({min(position.last)}): name another file, or "
                "correct CRAWL_NAMESPACE"
            )
        return position

    def _write_part(self) -> None:
        write_synced(self.part_path, self._position()._asdict())

    def _replace(self) -> None:
        replace_synced(self.part_path, self.position_path)

    # Events

    def drain(self, block_s: float = 0.0) -> int:
        """Append what is new, and return the number of events; wait up to `block_s` for the first.

        Raises:
            Overtaken: another process reads under this name by now; this one must have hung.
            RedisError: nothing is forgotten: call it again.

        """
        before = self.written
        while not self._stopping():
            self._settle()
            entries = self.streams.read(block_s)
            if not entries:
                break
            self.streams.renew()  # if another process took over meanwhile, these entries are its own
            self._append(entries)
            block_s = 0.0
        return self.written - before

    def _append(self, entries: list[EventEntry]) -> None:
        lines = [line for line in map(line_of, entries) if line is not None]
        self._file.writelines(lines)
        self._sync()
        self._unsettled = _Batch(self._position(), len(lines), len(entries) - len(lines))
        self.offset += sum(map(len, lines))
        self.last |= {entry.stream: entry.id for entry in entries}
        self._write_part()
        sync_folder(self.path.parent)
        self._settle()

    def _settle(self) -> None:
        """Have Redis note what was written, and then the file's position; renew the lease in any case."""
        if self._unsettled is None:
            self.streams.renew()
            return
        try:
            self.streams.note(self.offset)
        except Overtaken as error:
            if error.length != self.offset:
                self._undo(self._unsettled.before)
                raise
            self._settled(self._unsettled)  # it was noted before another took over, and the answer was lost
            raise
        self._settled(self._unsettled)

    def _settled(self, batch: _Batch) -> None:
        self._replace()
        self.written += batch.events
        self.skipped += batch.skipped
        self._unsettled = None

    def _undo(self, position: _Position) -> None:
        """Take back lines that are another's to write, unless somebody has written behind them."""
        if os.fstat(self._file.fileno()).st_size == self.offset:
            self._file.truncate(position.offset)


def default_name(state: BlockingState, path: Path, file_id: str) -> str:
    """Return the name of a file's reader that was given none; the id tells files of equal path apart."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", path.name)[:_LONGEST_NAME]
    return f"{state.config.namespace}-{state.keys.spider}-{plain}-{file_id}"


def line_of(entry: EventEntry) -> bytes | None:
    """Return the line of an event, None if the entry is not one."""
    event = event_of(entry)
    try:
        return None if event is None else one_line({"event": entry.name, **event}).encode() + b"\n"
    except RecursionError:
        return None
