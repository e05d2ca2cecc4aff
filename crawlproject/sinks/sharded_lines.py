"""The events of a crawl of several shards as JSON lines of one file, each exactly once."""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from crawlproject.errors import CrawlprojectError
from crawlproject.sinks.jsonlines import AppendedFile, default_name, line_of, replace_synced, write_synced
from crawlproject.state.client import BlockingState
from crawlproject.state.readers import START, Overtaken, StreamReader, is_behind, is_entry_id
from crawlproject.state.shard_readers import ShardReaders
from crawlproject.state.streams import EventEntry


class _Batch(NamedTuple):
    """Events of one shard that Redis may not have noted yet.

    `length` is how many bytes of that shard the file has with them, `last` the last entry of each of its streams.
    """

    length: int
    last: dict[str, str]
    lines: bytes
    events: int
    skipped: int


class ShardedEventFile(AppendedFile):
    """Appends the events of all shards to a file, a JSON object a line with the stream's name as `event`.

    Beside the file lies `<file>.position`: how long it is, the last entry of each stream of each shard in it, and
    how many bytes of it are of each shard. `<file>.position.batches` has what comes next of some shards. It goes
    in these steps, that of several shards at once, and a shard that does not answer holds up its own alone:

    1. The lines are written into `.batches`, and synced to disk.
    2. The shard notes the reader's position, and how many bytes of it the file has, if this process still has
       the lease. From here on they are this file's.
    3. The lines are appended to the file, and synced; then `.position` is replaced.

    A process that starts cuts the file to the length in `.position`. Of a batch that is not in it yet it asks the
    shard whether the second step was done, as soon as that answers, and does the third, or forgets it: then it is
    read from the stream again.
    """

    def __init__(
        self,
        path: Path,
        state: BlockingState,
        name: str | None = None,
        stopping: Callable[[], bool] = lambda: False,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        super().__init__(path)
        self.batches_path = self.path.with_name(self.position_path.name + ".batches")
        self._state = state
        self._name = name
        self._stopping = stopping
        self._say = say
        self._offset = 0
        self._lengths: dict[str, int] = {}  # bytes of the file by shard: its namespace
        self._batches: dict[str, _Batch] = {}  # by shard
        self._is_blank = True  # when it was opened

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the file and the leases of its reader: one process at a time; cut the file to its known length.

        Raises:
            CrawlprojectError: another process writes the file, or it was not written by `scrapy events`.
            ReaderTaken: another process reads under the same name.
            RedisError: no shard answers.

        """
        with self._held():
            self._begin()
            with self.streams.opened(self._join):
                yield

    # The position

    def _begin(self) -> None:
        """Read `.position` and `.batches`, and cut off what is not settled."""
        found = self._found()
        self._id = found.get("id") or secrets.token_hex(4)
        name = self._name or found.get("reader") or default_name(self._state, self.path, self._id)
        self.streams = ShardReaders(
            self._state, name, str(self.path), self._id, say=self._say, before=lambda reader: reader.renew()
        )
        if found:
            self._offset, self._lengths = found["offset"], found["lengths"]
            self.streams.goes_on_from(found["last"])
            self._is_blank = all(at == START for at in found["last"].values())
        self._cut(self._offset, name)
        former = found.get("reader", name)
        if former != name and not self._is_blank:
            self._remark_former(former)
        elif former == name and self.batches_path.exists():
            self._batches = self._stored_batches()
        self._write_position()

    def _found(self) -> dict[str, Any]:
        """Return what `.position` says, {} if it is not there."""
        if not self.position_path.exists():
            return {}
        try:
            found: dict[str, Any] = json.loads(self.position_path.read_text())
            last, lengths = dict(found["last"]), dict(found.get("lengths") or {})
            offset = int(found["offset"])
            if offset < 0 or not all(is_entry_id(at) for at in last.values()):
                raise ValueError
            if not all(isinstance(length, int) for length in lengths.values()):
                raise ValueError
        except (AttributeError, KeyError, TypeError, ValueError):
            raise CrawlprojectError(
                f"{self.position_path} was not written by scrapy events: restore it, or name another file"
            ) from None
        if not last.keys() & {stream for shard in self._state.shards for stream in shard.keys.streams}:
            raise CrawlprojectError(
                f"{self.path} holds the events of another namespace, or of a crawl with another number of shards "
                f"({min(last, default='none')}): name another file, or correct CRAWL_NAMESPACE and CRAWL_SHARDS"
            )
        found |= {"offset": offset, "last": last, "lengths": lengths}
        return found

    def _stored_batches(self) -> dict[str, _Batch]:
        try:
            stored = json.loads(self.batches_path.read_text())
            return {
                shard: _Batch(one["length"], one["last"], base64.b64decode(one["lines"]), one["events"], 0)
                for shard, one in stored["batches"].items()
                if stored["id"] == self._id and one["length"] > self._lengths.get(shard, 0)
            }
        except (KeyError, TypeError, ValueError):  # half written: then no shard has noted it
            return {}

    def _join(self, reader: StreamReader, stood: Mapping[str, str], noted: int | None) -> None:
        """Go on in a shard from where this file ends.

        `stood` and `noted` are from Redis: where the reader stands, and how many bytes the file had of the shard.
        """
        shard = self._shard_of(reader)
        batch = self._batches.pop(shard, None)
        if batch is not None and batch.length == noted:
            self._append({reader: batch})
        last = reader.last
        behind = {stream: at for stream, at in stood.items() if is_behind(last[stream], at)}
        if behind:
            self._go_on_from(reader, behind, noted)
        self._write_batches()
        self._write_position()
        self.streams.for_each(lambda reader: reader.note(self._lengths.get(shard, 0)), [reader])

    def _go_on_from(self, reader: StreamReader, behind: Mapping[str, str], noted: int | None) -> None:
        """Let a file go on after what its reader has read into others, and be complete otherwise."""
        is_other = self._is_blank or (noted or 0) == self._lengths.get(self._shard_of(reader), 0)
        if is_other:
            reader.last |= behind
        self._remark_further(self.streams.name, is_other)

    def _shard_of(self, reader: StreamReader) -> str:
        return self._state.shards[self.streams.readers.index(reader)].keys.namespace

    def _write_position(self) -> None:
        position = {
            "offset": self._offset,
            "last": self.streams.last,
            "lengths": self._lengths,
            "id": self._id,
            "reader": self.streams.name,
        }
        self._write(self.position_path, position)

    def _write_batches(self) -> None:
        batches = {
            shard: {
                "length": batch.length,
                "last": batch.last,
                "lines": base64.b64encode(batch.lines).decode(),
                "events": batch.events,
            }
            for shard, batch in self._batches.items()
        }
        if batches or self.batches_path.exists():
            self._write(self.batches_path, {"id": self._id, "batches": batches})

    def _write(self, path: Path, content: dict[str, Any]) -> None:
        """Replace a file, in one step and for good."""
        part = path.with_name(path.name + ".part")
        write_synced(part, content)
        replace_synced(part, path)

    # Events

    def drain(self, block_s: float = 0.0) -> int:
        """Append what is new, and return the number of events; wait up to `block_s` for the first.

        Raises:
            Overtaken: another process reads under this name by now; this one must have hung.
            RedisError: a shard does not answer, and `block_s` is 0: what the others had is written.

        """
        before, is_following = self.written, block_s > 0
        while not self._stopping():
            waiting = self._settle()
            found = self.streams.gather(block_s, is_following=is_following)
            # What was read of a shard before it had noted the last batch begins with that.
            new = {reader: entries for reader, entries in found if reader not in waiting}
            if not new and len(self._settle()) == len(waiting):  # those that have answered by now note theirs
                break
            self._take(new)
            block_s = 0.0
        if not is_following:
            self.streams.check()
        return self.written - before

    def _take(self, new: Mapping[StreamReader, list[EventEntry]]) -> None:
        """Write what was read into `.batches`, and then into the file."""
        for reader, entries in new.items():
            shard = self._shard_of(reader)
            lines = [line for line in map(line_of, entries) if line is not None]
            last = reader.last | {entry.stream: entry.id for entry in entries}
            length = self._lengths.get(shard, 0) + sum(map(len, lines))
            self._batches[shard] = _Batch(length, last, b"".join(lines), len(lines), len(entries) - len(lines))
        if new:
            self._write_batches()
            self._settle()

    def _settle(self) -> list[StreamReader]:
        """Have the shards note what is in `.batches`, and then append it; return those that do not answer."""
        by_reader = {
            reader: self._batches[shard]
            for reader in self.streams.joined
            if (shard := self._shard_of(reader)) in self._batches
        }
        if not by_reader:
            return []
        noted: list[StreamReader] = []
        lost: list[Overtaken] = []

        def note(reader: StreamReader) -> None:
            batch = by_reader[reader]
            try:
                reader.note_at(batch.last, batch.length)
            except Overtaken as error:
                lost.append(error)
                if error.length != batch.length:
                    return  # it was noted before another took over, and the answer was lost, if it is the same
            noted.append(reader)

        self.streams.for_each(note, list(by_reader))
        self._append({reader: by_reader[reader] for reader in noted})
        if lost:
            raise lost[0]
        return [reader for reader in by_reader if reader not in noted]

    def _append(self, settled: Mapping[StreamReader, _Batch]) -> None:
        """Append batches that their shards have noted."""
        if not settled:
            return
        self._check_in_place()
        for reader, batch in settled.items():
            shard = self._shard_of(reader)
            self._file.write(batch.lines)
            self._offset += len(batch.lines)
            self._lengths[shard] = batch.length
            reader.last |= batch.last
            self._batches.pop(shard, None)
            self.written += batch.events
            self.skipped += batch.skipped
        self._file.flush()
        os.fsync(self._file.fileno())
        self._write_position()
