"""Events as JSON lines of a file, each exactly once."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from crawlproject.errors import CrawlprojectError
from crawlproject.sinks.sink import Sink, default_name, event_of
from crawlproject.state.client import State
from crawlproject.storage.blobs import sync
from crawlproject.streams.readers import Overtaken, StreamReader, is_behind, is_entry_id
from crawlproject.streams.streams import START, EventEntry
from crawlproject.texts import one_line, printable, scrapy_command


class _Position(NamedTuple):
    """The content of `.position` beside a file: whose the file is, and what it holds."""

    offset: int  # length of the file, in bytes
    last: dict[str, str]  # the last entry in it, by stream
    id: str  # of the file, wherever it is
    reader: str  # the name under which it is written


class EventFile(Sink):
    """Appends the events of a shard to a file, a JSON object a line with the name of its stream as `event`.

    Beside the file lies `<file>.position`: how long the file is, the last entry of each stream in it, the file's
    id, and the name of its reader. A batch of events goes in these steps:

    1. The lines are written, and synced to disk.
    2. Redis notes the reader's position and the length of the file, by its id, if this process still has the
       reader's lease. From here on they are this file's.
    3. `.position` is replaced.

    A process that starts, or that does not know whether Redis did the second step, takes the length that Redis has
    noted, if that is more than `.position` says. What is behind was written by a process that died before the
    second step: it is cut off, and read from the stream again. So every event is there once; and once in all the
    files of one reader, if there are several. The position in Redis keeps unread entries from being trimmed, too.
    """

    def __init__(
        self, path: Path, state: State, name: str | None = None, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__()
        self.path = path.resolve()
        self.position_path = self.path.with_name(self.path.name + ".position")
        self._state = state
        self._name = name
        self._stopping = stopping
        self._is_settled = False  # whether this process knows what of the file Redis has noted

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Hold the file and the lease of its reader; cut the file to its last known length."""
        with self._held():
            self._begin()
            async with self.streams.held() as (stood, noted):
                await self._settle(stood, noted)
                yield

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

    # The position

    def _begin(self) -> None:
        """Read whose the file is, or choose it and write it to disk, before Redis gets the name."""
        found = self._read_position()
        identity = found.id if found else secrets.token_hex(4)
        name = self._name or (found.reader if found else default_name(self._state, self.path.name, identity))
        if found and found.reader != name:
            raise CrawlprojectError(
                f"{self.path} is written by reader {printable(found.reader)}: leave out --reader, or name another "
                "file"
            )
        self.streams = StreamReader(self._state, name, str(self.path), identity)
        self.offset = 0
        if found is not None:
            self.offset = found.offset
            self.streams.last |= {stream: at for stream, at in found.last.items() if stream in self.streams.last}
        else:
            self._write_position()

    async def _settle(self, stood: Mapping[str, str], noted: int | None) -> None:
        """Go on from where this file ends, and cut off what Redis has not noted.

        `stood` and `noted` are from Redis: where the reader stands, and how long the file was then.
        """
        length = self._file.seek(0, os.SEEK_END)
        if length < self.offset:
            raise CrawlprojectError(
                f"{self.path} is {length} bytes long, but {self.offset} bytes were written to it: restore it; or "
                f"remove it and {self.position_path.name} to begin with all events that are still kept, and then "
                f"{scrapy_command('events', f'--forget={self.streams.name}')}"
            )
        last = self.streams.last
        ahead = {stream: at for stream, at in stood.items() if is_behind(last[stream], at)}
        is_blank = not self.offset and all(at == START for at in last.values())
        if noted is not None and self.offset < noted <= length:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                self.written += file.read(noted - self.offset).count(b"\n")
            self.offset = noted
            last |= ahead
        elif ahead and (is_blank or noted == self.offset):
            last |= ahead
            self._remark("continues after the events that reader {} has already written to other files")
        elif ahead:
            self._remark("is an older copy: what reader {} has read since is read again")
        self._file.truncate(self.offset)
        await self._note()

    def _remark(self, text: str) -> None:
        self.remarks.append(f"{self.path.name} {text.format(self.streams.name)}")

    async def _note(self) -> None:
        """Have Redis note how far the file is, and then `.position`."""
        self._is_settled = False
        await self.streams.note(self.offset)
        await asyncio.to_thread(self._write_position)
        self._is_settled = True

    def _read_position(self) -> _Position | None:
        path = self.position_path
        if not path.exists():
            return None
        try:
            found = json.loads(path.read_text())
            position = _Position(int(found["offset"]), dict(found["last"]), str(found["id"]), str(found["reader"]))
            if position.offset < 0 or not all(is_entry_id(at) for at in position.last.values()):
                raise ValueError
        except (AttributeError, KeyError, TypeError, ValueError):
            raise CrawlprojectError(
                f"{path} was not written by scrapy events: restore it, or name another file"
            ) from None
        if position.last and not set(self._state.keys.streams) & position.last.keys():
            raise CrawlprojectError(
                f"{self.path} holds the events of another namespace ({min(position.last)}): name another file, or "
                "correct CRAWL_NAMESPACE"
            )
        return position

    def _write_position(self) -> None:
        """Replace `.position`, in one step and for good."""
        position = _Position(self.offset, dict(self.streams.last), self.streams.file, self.streams.name)
        part = self.position_path.with_name(self.position_path.name + ".part")
        part.write_text(json.dumps(position._asdict()))
        sync(part)
        part.replace(self.position_path)
        sync(self.path.parent)

    # Events

    async def drain(self, block_s: float = 0.0) -> int:
        """Append what is new."""
        before = self.written
        while not self._stopping():
            if not self._is_settled:
                await self._settle(*await self.streams.take())
            entries = await self.streams.read(block_s)
            if not entries:
                break
            await self._append(entries)
            block_s = 0.0
        return self.written - before

    async def _append(self, entries: list[EventEntry]) -> None:
        lines = [line for line in map(line_of, entries) if line is not None]
        self._is_settled = False
        await asyncio.to_thread(self._write, lines)
        before, self.offset = self.offset, self.offset + sum(map(len, lines))
        last = dict(self.streams.last)
        self.streams.last |= {entry.stream: entry.id for entry in entries}
        try:
            await self._note()
        except Overtaken as error:
            if error.length != self.offset:  # else it was noted before another took over, and the answer was lost
                self._take_back(before)
            raise
        except BaseException:
            self.offset, self.streams.last = before, last  # until it is known
            raise
        self.written += len(lines)
        self.skipped += len(entries) - len(lines)

    def _write(self, lines: list[bytes]) -> None:
        """Have lines on disk.

        Raises:
            CrawlprojectError: the file that is written is not the one of that name any more.

        """
        self._file.writelines(lines)
        self._file.flush()
        os.fsync(self._file.fileno())
        with suppress(FileNotFoundError):
            if os.path.samestat(self.path.stat(), os.fstat(self._file.fileno())):
                return
        raise CrawlprojectError(
            f"{self.path} was removed, renamed or replaced while it was being written: put it back as it was, "
            "or name another file to begin with all events that are still kept"
        )

    def _take_back(self, offset: int) -> None:
        """Take back lines that are another's to write, unless somebody has written behind them."""
        if os.fstat(self._file.fileno()).st_size == self.offset:
            self._file.truncate(offset)


def line_of(entry: EventEntry) -> bytes | None:
    """Return the line of an event, None if the entry is not one."""
    event = event_of(entry)
    try:
        return None if event is None else one_line({"event": entry.name, **event}).encode() + b"\n"
    except RecursionError:
        return None
