"""Where events go: the interface of readers, of plug-ins, too (docs/plugins.md); and an entry's event."""

from __future__ import annotations

import argparse
import json
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar

from scrapy.settings import BaseSettings

from crawlproject.frontier.dead_letters import failed_event
from crawlproject.state.client import State
from crawlproject.streams.readers import StreamReader
from crawlproject.streams.streams import EventEntry
from crawlproject.texts import one_line

_LONGEST_NAME = 80  # characters of the file's name in that of its reader


class Sink(ABC):
    """Takes the events of one shard: a reader of its streams."""

    def __init__(self) -> None:
        self.written = 0  # events
        self.skipped = 0  # entries that are not events: not written by us
        self.is_open = False  # for those who begin what it is to read
        self.remarks: list[str] = []  # notes for the operator, after it was opened

    @abstractmethod
    def opened(self) -> AbstractAsyncContextManager[None]:
        """Return a context that holds what is written and the lease of its reader: one process at a time.

        Raises:
            CrawlprojectError: it cannot be written, or another process writes it.
            ReaderTaken: another process reads under the same name.
            RedisError, StorageDown: enter another one later.

        """

    @abstractmethod
    async def drain(self, block_s: float = 0.0) -> int:
        """Take what is new, and return the number of events; wait up to `block_s` for the first.

        Raises:
            CrawlprojectError: it cannot go on.
            ReaderTaken: another process reads under this name by now; this one must have hung.
            RedisError, StorageDown: nothing is lost: call it again.

        """

    async def finish(self) -> None:  # noqa: B027
        """Have what waits for more appear, at the end."""


def default_name(state: State, name: str, identity: str) -> str:
    """Return the name of the reader of a file that was given none; its id tells files of equal name apart."""
    whole = f"{state.config.namespace}-{state.keys.spider}-{name[:_LONGEST_NAME]}-{identity}"
    return re.sub(r"[^A-Za-z0-9._-]", "-", whole)


def event_of(entry: EventEntry) -> dict[str, Any] | None:
    """Return the event of an entry, None if it is not one of ours."""
    text = entry.fields.get(b"event")
    if text is None:
        return failed_event(entry.id, entry.fields) if entry.name == "failed" else None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and data.get("event", entry.name) == entry.name else None


def json_of(entry: EventEntry, event: dict[str, Any]) -> bytes:
    """Return the JSON of an entry's event: as it stands in the stream, where it stands there."""
    return entry.fields.get(b"event") or one_line(event).encode()


class BatchSink(Sink):
    """Hands over batches of events, each event at least once.

    Where it stands is in Redis alone, and moves on when a whole batch has been taken: nothing that was not is
    trimmed, and leasing pauses when too much of that piles up. What was taken between two such moves comes again
    in the next process if this one dies. `output` is shown by `scrapy events --readers`; `streams` are the names
    of events, as in "link_rot": all unless some are given.
    """

    def __init__(
        self, state: State, name: str, output: str, stopping: Callable[[], bool], streams: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.stopping = stopping
        keys = [key for key in state.keys.streams if key.rpartition(":")[2] in streams]
        self.streams = StreamReader(state, name, output, streams=keys)
        self._unnoted = False  # whether Redis does not know yet where the reader is

    @abstractmethod
    async def take(self, events: Sequence[tuple[EventEntry, dict[str, Any]]]) -> bool:
        """Take a batch, perhaps an empty one; return False if a stop came before all of it was taken.

        Raises:
            CrawlprojectError: it is refused.
            StorageDown: call it again later, with the same.

        """

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Take the reader's lease, and go on from where it stands."""
        async with self.streams.held() as (stood, _):
            self.streams.last |= stood
            await self.streams.note()
            yield

    async def drain(self, block_s: float = 0.0) -> int:
        """Hand over what is new."""
        before = self.written
        while not self.stopping():
            await self._note()
            entries = await self.streams.read(block_s)
            events = [(entry, event) for entry in entries if (event := event_of(entry)) is not None]
            if not await self.take(events) or not entries:
                break
            self.written += len(events)
            self.skipped += len(entries) - len(events)
            self.streams.last |= {entry.stream: entry.id for entry in entries}
            self._unnoted = True
            await self._note()
            block_s = 0.0
        return self.written - before

    async def _note(self) -> None:
        if self._unnoted:
            await self.streams.note()
            self._unnoted = False


class Target(ABC):
    """What `scrapy events` writes to: `scrapy events WHERE:NAME`, or `--NAME` for one that needs no place.

    `options` are those of the command that it has, as argparse's `add_argument` takes them.
    """

    needs_place: ClassVar[bool] = True
    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    about: ClassVar[str] = ""  # for the help of `--NAME`

    def __init__(self, state: State, where: str, opts: argparse.Namespace, settings: BaseSettings) -> None:
        """Check `where` and the options.

        Raises:
            UsageError, CrawlprojectError: they are wrong, or a library is missing.

        """
        self.state, self.where, self.opts, self.settings = state, where, opts, settings
        self.what = f"written to {where}"  # what the number of events is followed by

    @abstractmethod
    def sink(self, shard: State, stopping: Callable[[], bool]) -> Sink:
        """Return what takes the events of a shard until `stopping`."""

    def remarks(self) -> Sequence[str]:
        """Return notes for the operator, at the end."""
        return ()
