"""Events as a dataset of numbered parts: each image once, whatever happens to who writes it."""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from redis import RedisError

from crawlproject.errors import CrawlprojectError, ReaderTaken
from crawlproject.sinks.entries import event_of
from crawlproject.state.client import BlockingState
from crawlproject.state.readers import START, Overtaken, StreamReader, is_behind, is_entry_id
from crawlproject.state.shard_readers import ShardReaders
from crawlproject.state.streams import EventEntry
from crawlproject.storage.parts import PartExists, Parts
from crawlproject.texts import printable, scrapy_command

ABOUT = "_dataset.json"  # whose the dataset is; readers of Parquet pass over names that begin with `_`
FOOTER = b"crawlproject"  # the key of what a part's footer says, as JSON

_PART = re.compile(r"(\d{8})\.parquet")
_RENEW_S = 1.0
_WAIT_S = 0.2


def name_of(number: int, ending: str = ".parquet") -> str:
    """Return the name of a file of a part."""
    return f"{number:08d}{ending}"


def _streams(state: BlockingState) -> tuple[str, ...]:
    """Return the streams of a shard whose events are rows."""
    keys = state.keys
    return keys.image_events, keys.probe_events, keys.link_rot_events, keys.failed_events


def _count_of(names: Iterable[str]) -> int:
    """Return how many parts there are or were, by the names of those that are here."""
    return max((int(found[1]) + 1 for found in map(_PART.fullmatch, names) if found), default=0)


def _renew(reader: StreamReader) -> None:
    reader.renew()


def _begun(what: str, value: Any) -> str:
    """Return what is noted of a dataset, as in "was begun with thumbnails, not with originals"."""
    if what == "caption":
        return "without --caption" if value is None else f"with --caption {printable(str(value))}"
    return f"with {'' if what == 'pictures' else what + ' '}{printable(str(value))}"


class Form(Protocol):
    """The form of a dataset's parts: writes one at a time. Methods block."""

    name: str

    @property
    def rows(self) -> int:
        """The rows in the part that is being written."""

    def look_up(self, entries: list[tuple[EventEntry, dict[str, Any]]]) -> None:
        """Learn which events come next, to fetch at once what they need."""

    def add(self, number: int, name: str, event: dict[str, Any]) -> None:
        """Add an event to part `number`; `name` is that of its stream.

        Raises:
            StorageDown: what it needs cannot be had at present: it is not added.

        """

    def is_full(self) -> bool:
        """Tell whether the part must not become larger."""

    def put(self, number: int, footer: dict[str, Any]) -> None:
        """Have the part appear, with that in the footer of its Parquet file; what comes then is in the next.

        Can be repeated after StorageDown.

        Raises:
            PartExists: another process has put it.

        """

    def complete(self, number: int, footer: Mapping[str, Any]) -> None:
        """Put what belongs beside a part that has appeared; can be repeated."""

    def begun(self, number: int) -> dict[str, str] | None:
        """Return the last entry of each stream in a part that a process has begun to put, and that cannot be taken
        back: the part must end there. None: there is no such.
        """


class _Footer(NamedTuple):
    last: dict[str, str]  # the last entry of each stream in this part or before it
    all: dict[str, Any]


class Dataset:
    """Writes the events of images, probes, link rot and failures as the rows of numbered parts.

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
        state: BlockingState,
        parts: Parts,
        form: Form,
        *,
        every: float,
        name: str | None = None,
        about: Mapping[str, Any] | None = None,
        stopping: Callable[[], bool] = lambda: False,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.written = 0  # events
        self.skipped = 0  # entries that are not events: not written by us
        self._state = state
        self._parts = parts
        self._form = form
        self._every = every
        self._name = name
        self._about = dict(about or {})
        self._stopping = stopping
        self._say = say
        self._has_begun = False  # whether the newest part was looked up
        self._count = 0  # parts that have appeared
        self._since: float | None = None  # when the first row of the present one came
        self._unnoted: set[StreamReader] = set()  # of shards that do not know where the newest part ends
        self._incomplete: dict[str, Any] | None = None  # footer of a part beside which something may be missing
        self._cut: dict[str, str] | None = None  # where a part that another has begun to put must end
        self._taken_over: Overtaken | None = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the dataset and the lease of its reader, and go on behind its newest part.

        Raises:
            CrawlprojectError: another process writes it, it is another's, or parts are missing.
            ReaderTaken: another process reads under the same name.
            StorageDown: it cannot be reached at present.

        """
        with self._parts.opened():
            identity, name = self._identity()
            self.streams = ShardReaders(self._state, name, self._parts.place, identity, _streams, say=self._say)
            with self.streams.opened(self._join), self._renewing():
                yield

    # Whose it is, and how far

    def _identity(self) -> tuple[str, str]:
        """Return the dataset's id and its reader's name, which are written before Redis gets them."""
        names = self._parts.names()
        about = {"format": self._form.name, "namespace": self._state.keys.crawl, **self._about}
        if ABOUT not in names:
            if count := _count_of(names):
                raise CrawlprojectError(
                    f"{self._parts.place} has {name_of(count - 1)}, but no {ABOUT}, which says whose that is: "
                    "restore it, or name another folder"
                )
            identity = secrets.token_hex(4)
            namespace, spider = self._state.config.namespace, self._state.keys.spider
            plain = re.sub(r"[^A-Za-z0-9._-]", "-", self._parts.name)[:80]
            reader = self._name or f"{namespace}-{spider}-{plain}-{identity}"
            text = json.dumps({"id": identity, "reader": reader, **about}, indent=1)
            self._parts.unfinished(ABOUT).write_text(text + "\n")
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
        for what, value in about.items():
            if found.get(what) != value:
                raise CrawlprojectError(
                    f"{self._parts.place} was begun {_begun(what, found.get(what))}, not {_begun(what, value)}: "
                    "name another folder, or correct that"
                )
        return identity, self._name or reader

    def _begin(self) -> None:
        """Go on behind the newest part; nobody adds one any more when the lease is held."""
        self._has_begun = True
        self._count = _count_of(self._parts.names())
        if self._count:
            footer = self._footer(self._count - 1)
            self.streams.goes_on_from(footer.last)
            self._incomplete = footer.all
        self._cut = self._form.begun(self._count)

    def _join(self, streams: StreamReader, stood: Mapping[str, str], noted: int | None) -> None:
        """Go on in a shard behind the newest part.

        `stood` and `noted` are from Redis: where the reader is, and how many parts there were then.
        """
        if not self._has_begun:
            self._begin()
        reader, place = streams.name, self._parts.place
        if noted is not None and noted > self._count:
            raise CrawlprojectError(
                f"{place} lacks {name_of(noted - 1)}, the newest of its parts: restore it (older ones may go), or "
                "name an empty folder to begin with all events that are still kept, and then "
                f"{scrapy_command('events', f'--forget={reader}')}"
            )
        last = streams.last
        ahead = {stream: at for stream, at in stood.items() if is_behind(last[stream], at)}
        if ahead and self._count and noted is None:
            raise CrawlprojectError(
                f"reader {reader} has read further than {place}, which would lack what is between: leave out "
                "--reader, or name an empty folder"
            )
        last |= ahead  # what this reader has read into others, or what is no row of any
        self._unnoted.add(streams)
        self._note()

    def _footer(self, number: int) -> _Footer:
        """Return what stands in the footer of a part."""
        try:
            with self._parts.read(name_of(number)) as file:
                noted = json.loads((pq.read_metadata(file).metadata or {})[FOOTER])
            last = dict(noted["last"])
            if not all(is_entry_id(at) for at in last.values()):
                raise ValueError
        except (KeyError, TypeError, ValueError, pa.ArrowException):
            raise CrawlprojectError(
                f"{name_of(number)} in {self._parts.place} was not written by scrapy events: restore it, or name "
                "another folder"
            ) from None
        return _Footer(last, noted)

    # Events

    def drain(self, block_s: float = 0.0) -> int:
        """Take what is new into parts, and return the number of events; wait up to `block_s` for the first.

        Raises:
            ReaderTaken: another process writes this dataset by now; this one must have hung.
            RedisError, StorageDown: nothing is lost: call it again. Where `block_s` is 0 and one of several shards
                does not answer, what the others had is in parts.

        """
        before, is_following = self.written, block_s > 0
        while not self._stopping():
            if self._is_due():
                self.commit()
            self._note()
            batches = self.streams.gather(block_s, is_following=is_following)
            if any(reader in self._unnoted for reader, _ in batches):
                self._note()  # they answer again
            has_taken = False
            for reader, entries in batches:
                # Of a shard that does not know yet where the newest part ends, it would note more than that.
                if reader not in self._unnoted:
                    has_taken |= self._take(reader, entries)
            if not has_taken:
                if batches and is_following:  # they come again at once
                    time.sleep(_WAIT_S)
                break
            block_s = 0.0
        if not is_following:
            try:
                self.streams.check()
            except RedisError:
                self.commit()  # what the others had: those who call wait for nothing more
                raise
            if self._cut is not None and not self._stopping():
                raise self._lacking()
        return self.written - before

    def _is_due(self) -> bool:
        if self._cut is not None:
            return not any(map(self._is_before_cut, self.streams.readers))
        is_late = self._since is not None and time.monotonic() >= self._since + self._every
        return self._form.rows > 0 and (is_late or self._form.is_full())

    def _is_before_cut(self, reader: StreamReader) -> bool:
        """Tell whether a part that another has begun to put has more of a shard."""
        return self._cut is not None and any(
            is_behind(at, self._cut.get(stream, at)) for stream, at in reader.last.items()
        )

    def _take(self, reader: StreamReader, entries: list[EventEntry]) -> bool:
        """Take entries of a shard, in parts as they become full; its reader is behind the last that was taken.

        It ends with a part that the shard does not note. Return whether any was taken: not while a part that
        another has begun to put waits for other shards.
        """
        found: dict[int, dict[str, Any]] = {}
        foreign: set[int] = set()
        for index, entry in enumerate(entries):
            event = event_of(entry)
            if event is None:
                foreign.add(index)
            elif event.get("spider", "images") == self._state.keys.spider:
                found[index] = event
        self._form.look_up([(entries[index], event) for index, event in found.items()])
        before = dict(reader.last)
        for index, entry in enumerate(entries):
            if self._cut is not None and is_behind(self._cut.get(entry.stream, START), entry.id):
                continue  # of the next part: read again
            if index in found:
                self._form.add(self._count, entry.name, found[index])
                self.written += 1
                if self._since is None:
                    self._since = time.monotonic()
            elif index in foreign:
                self.skipped += 1
            reader.last[entry.stream] = entry.id
            if self._is_due():
                self.commit()
                if reader in self._unnoted:
                    break
        has_taken = reader.last != before
        if not has_taken and self._is_before_cut(reader):
            raise self._lacking()
        return has_taken

    def _lacking(self) -> CrawlprojectError:
        return CrawlprojectError(
            f"{self._parts.place} has a beginning of part {name_of(self._count, '')}, but Redis lacks some of "
            "its events: remove that, and start again"
        )

    def commit(self) -> None:
        """Have the part appear that there are rows for, and tell Redis.

        Not one that another has begun to put, as long as some of its events are to come.
        """
        if self._taken_over is not None:
            raise self._taken_over
        if self._cut is not None and not self._is_due():
            return
        if self._form.rows or self._cut is not None:
            footer = {
                "dataset": self.streams.file,
                "reader": self.streams.name,
                "number": self._count,
                "rows": self._form.rows,
                "last": dict(self.streams.last),
            }
            self.streams.for_each(_renew)
            try:
                self._form.put(self._count, footer)
            except PartExists as error:
                raise ReaderTaken(
                    f"{error}, because this process had hung: exiting, the other continues"
                ) from None
            self._count += 1
            self._incomplete = footer
            self._since = self._cut = None
        self._unnoted.update(self.streams.joined)
        self._note()

    def _note(self) -> None:
        """Tell Redis what need not be kept: what is in parts, and what is no row of any."""
        if self._taken_over is not None:
            raise self._taken_over
        if self._incomplete is not None:
            self._form.complete(self._count - 1, self._incomplete)
            self._incomplete = None
        told = self.streams.joined if self._form.rows == 0 and self._cut is None else list(self._unnoted)
        self._unnoted.difference_update(self.streams.for_each(lambda reader: reader.note(self._count), told))

    @contextmanager
    def _renewing(self) -> Iterator[None]:
        """Keep the lease, which is shorter than what putting a part may take."""
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(_RENEW_S):
                try:
                    self.streams.for_each(_renew)
                except Overtaken as error:
                    self._taken_over = error
                    return
                except RedisError:
                    continue  # who reads and notes meets it, too

        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
