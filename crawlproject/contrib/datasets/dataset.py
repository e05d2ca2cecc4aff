"""Events as a dataset of numbered parts: each image once, whatever happens to who writes it."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crawlproject.contrib.datasets.parquet import FOOTER, ParquetForm, name_of
from crawlproject.contrib.datasets.parts import PartExists, Parts
from crawlproject.errors import CrawlprojectError, ReaderTaken
from crawlproject.sinks.sink import Sink, default_name, event_of
from crawlproject.state.client import State
from crawlproject.streams.readers import StreamReader, is_behind, is_entry_id
from crawlproject.streams.streams import EventEntry
from crawlproject.texts import printable, scrapy_command

ABOUT = "_dataset.json"  # whose the dataset is; readers of Parquet pass over names that begin with `_`
_PART = re.compile(r"(\d{8})\.parquet")


def _count_of(names: Iterable[str]) -> int:
    """Return how many parts there are or were, by the names of those that are here."""
    return max((int(found[1]) + 1 for found in map(_PART.fullmatch, names) if found), default=0)


def namespace_of(parts: Parts) -> tuple[str | None, bool]:
    """Return the namespace of the crawl that a dataset is of, None if there is no dataset; and if it has parts."""
    names = parts.names()
    if ABOUT not in names:
        return None, _count_of(names) > 0
    with parts.read(ABOUT) as file, suppress(KeyError, TypeError, ValueError):
        return str(json.load(file)["namespace"]), _count_of(names) > 0
    return None, True


def _begun(what: str, value: Any) -> str:
    """Return what is noted of a dataset, as in "was begun with thumbnails, not with originals"."""
    name = {"caption": "--caption ", "keep": "--keep ", "pictures": ""}.get(what, f"{what} ")
    return f"without {name}".rstrip() if value is None else f"with {name}{printable(str(value), 500)}"


def _is_smaller(event: Mapping[str, Any], square: int) -> bool:
    """Tell whether the (first) thumbnail of an event is smaller than a square of this side."""
    stored = event.get("thumbnails")
    first = stored[0] if isinstance(stored, list) and stored and isinstance(stored[0], dict) else {}
    return any(isinstance(first.get(side), int) and first[side] < square for side in ("width", "height"))


class Dataset(Sink):
    """Writes the events of images, or of pages, with their link rot and failures as the rows of numbered parts.

    The Parquet file of a part appears whole and in one step, under a number that is given once. Its footer says
    which entry of each stream is the last in it, and nothing else does: a process that starts reads the newest
    footer, and goes on behind that. Redis is told when a part has appeared, and keeps what comes after it: what a
    process that died had only read is read again. Where two processes both believe to be the writer, they want the
    same number, and one gets it.

    A row waits `every` seconds at most for its part to appear. `about` is what is noted of the dataset, to be the
    same each time that it is continued.
    """

    def __init__(
        self,
        state: State,
        parts: Parts,
        form: ParquetForm,
        *,
        every: float,
        name: str | None = None,
        about: Mapping[str, Any] | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__()
        self._state = state
        self._parts = parts
        self._form = form
        self._every = every
        self._name = name
        self._about = dict(about or {})
        self._stopping = stopping
        self.square = 0  # pixels of a side that thumbnails are meant to have; `smaller` counts those without
        self.smaller = 0
        self._count = 0  # parts that have appeared
        self._since: float | None = None  # when the first row of the present one came
        self._noted: dict[str, str] | None = None  # where Redis knows the reader to be; None: it has to hear more
        self._incomplete: dict[str, Any] | None = None  # footer of a part beside which something may be missing

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Hold the dataset and the lease of its reader, and go on behind its newest part."""
        with self._parts.opened():
            identity, name = await asyncio.to_thread(self._identity)
            keys = self._state.keys
            streams = [getattr(keys, name) for name in self._form.streams]
            self.streams = StreamReader(self._state, name, self._parts.place, identity, streams)
            async with self.streams.held() as (stood, noted):
                await self._begin(stood, noted)
                yield

    # Whose it is, and how far

    def _identity(self) -> tuple[str, str]:
        """Return the dataset's id and its reader's name, which are written before Redis gets them."""
        names = self._parts.names()
        about = {"format": self._form.name, "namespace": self._state.keys.namespace, **self._about}
        if ABOUT not in names:
            if count := _count_of(names):
                raise CrawlprojectError(
                    f"{self._parts.place} has {name_of(count - 1)}, but no {ABOUT}, which says whose that is: "
                    "restore it, or name another folder"
                )
            identity = secrets.token_hex(4)
            reader = self._name or default_name(self._state, self._parts.name, identity)
            text = json.dumps({"id": identity, "reader": reader, **about}, indent=1)
            self._parts.create(ABOUT).write(f"{text}\n".encode())
            with suppress(PartExists):  # by another process, at this moment: the lease decides
                self._parts.put_new(ABOUT)
        with self._parts.read(ABOUT) as file:
            text = file.read().decode(errors="replace")
        try:
            found = json.loads(text)
            identity, reader = str(found["id"]), str(found["reader"])
        except (KeyError, TypeError, ValueError):
            raise CrawlprojectError(
                f"{ABOUT} in {self._parts.place} was not written by scrapy events: restore it, or name another "
                "folder"
            ) from None
        for what, value in {**about, "reader": self._name or reader}.items():
            if found.get(what) != value:
                raise CrawlprojectError(
                    f"{self._parts.place} was begun {_begun(what, found.get(what))}, not {_begun(what, value)}: "
                    "name another folder, or correct that"
                )
        return identity, reader

    async def _begin(self, stood: Mapping[str, str], noted: int | None) -> None:
        """Go on behind the newest part; nobody adds one any more when the lease is held.

        `stood` and `noted` are from Redis: where the reader is, and how many parts there were then.
        """
        reader, place = self.streams.name, self._parts.place
        names = await asyncio.to_thread(self._parts.names)
        self._count = _count_of(names)
        if noted is not None and noted > self._count:
            raise CrawlprojectError(
                f"{place} lacks {name_of(noted - 1)}, the newest of its parts: restore it (older ones may go), or "
                "name an empty folder to begin with all events that are still kept, and then "
                f"{scrapy_command('events', f'--forget={reader}')}"
            )
        last = self.streams.last
        if self._count:
            footer = await asyncio.to_thread(self._footer, self._count - 1)
            last |= {stream: at for stream, at in footer["last"].items() if stream in last}
            self._incomplete = footer
        # what this reader has read into others, or what is no row of any
        last |= {stream: at for stream, at in stood.items() if is_behind(last[stream], at)}
        await self._note()
        if self._form.first and name_of(self._count, self._form.first) in names:
            self._form.void(self._count)
            await self._put()
            await self._note()

    def _footer(self, number: int) -> dict[str, Any]:
        """Return what stands in the footer of a part."""
        try:
            with self._parts.read(name_of(number)) as file:
                noted: dict[str, Any] = json.loads((pq.read_metadata(file).metadata or {})[FOOTER])
            if not all(is_entry_id(at) for at in noted["last"].values()):
                raise ValueError
        except (AttributeError, KeyError, TypeError, ValueError, pa.ArrowException):
            raise CrawlprojectError(
                f"{name_of(number)} in {self._parts.place} was not written by scrapy events: restore it, or name "
                "another folder"
            ) from None
        return noted

    # Events

    async def drain(self, block_s: float = 0.0) -> int:
        """Take what is new into parts."""
        before = self.written
        while not self._stopping():
            if self._is_due():
                await self.commit()
            await self._note()
            entries = await self.streams.read(block_s)
            if not entries:
                break
            await self._take(entries)
            block_s = 0.0
        return self.written - before

    def _is_due(self) -> bool:
        is_late = self._since is not None and time.monotonic() >= self._since + self._every
        return self._form.rows > 0 and (is_late or self._form.is_full())

    async def _take(self, entries: list[EventEntry]) -> None:
        """Take entries, in parts as they become full."""
        found = [(entry, event_of(entry)) for entry in entries]
        self._form.look_up([event for _, event in found if event and self._is_row(event)])
        left = iter(found)
        while await asyncio.to_thread(self._fill, left):
            await self.commit()

    def _is_row(self, event: Mapping[str, Any]) -> bool:
        spider = self._form.spider
        return bool(event.get("spider", spider) == spider)

    def _fill(self, left: Iterator[tuple[EventEntry, dict[str, Any] | None]]) -> bool:
        """Take entries until the part is due, or there are no more; tell whether it is due."""
        for entry, event in left:
            if event is None:
                self.skipped += 1
            elif self._is_row(event):
                self._form.add(self._count, entry.name, event)
                self.written += 1
                self.smaller += _is_smaller(event, self.square)
                if self._since is None:
                    self._since = time.monotonic()
            self.streams.last[entry.stream] = entry.id
            if self._is_due():
                return True
        return False

    async def finish(self) -> None:
        """Have the last part appear, full or not."""
        await self.commit()

    async def commit(self) -> None:
        """Have the part appear that there are rows for, and tell Redis."""
        if self._form.rows:
            await self._put()
        await self._note()

    async def _put(self) -> None:
        footer = {
            "dataset": self.streams.file,
            "reader": self.streams.name,
            "number": self._count,
            "rows": self._form.rows,
            "last": dict(self.streams.last),
        }
        await self.streams.renew()
        try:
            await asyncio.to_thread(self._form.put, self._count, footer)
        except PartExists as error:
            raise ReaderTaken(f"{error}, because this process had hung: exiting, the other continues") from None
        self._count += 1
        self._incomplete = footer
        self._since = self._noted = None

    async def _note(self) -> None:
        """Tell Redis what need not be kept: what is in parts, and what is no row of any."""
        if self._incomplete is not None:
            await asyncio.to_thread(self._form.complete, self._count - 1, self._incomplete)
            self._incomplete = None
        if not self._form.rows and self._noted != self.streams.last:
            await self.streams.note(self._count)
            self._noted = dict(self.streams.last)
