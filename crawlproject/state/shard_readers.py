"""The readers of one name, one in each shard of a crawl: each has a lease, reads, waits and fails by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import NamedTuple

import redis

from crawlproject.errors import ReaderTaken
from crawlproject.state.client import BlockingState
from crawlproject.state.health import plain
from crawlproject.state.readers import StreamReader
from crawlproject.state.streams import EventEntry

_AGAIN_S = 1.0  # until a shard that does not answer is tried again
_TOGETHER_S = 0.02  # that a batch of one shard waits for those of others
_BLOCK_S = 1.0  # that a thread waits for entries: how long a stop may take

Joined = Callable[[StreamReader, Mapping[str, str], int | None], None]


class _Answer(NamedTuple):
    """What a shard has answered: where its reader stood and the length noted, once; then entries."""

    taken: tuple[Mapping[str, str], int | None] | None
    entries: list[EventEntry]


class ShardReaders:
    """Reads the event streams of all shards of a crawl under one name.

    With one shard each call is a call of its `StreamReader`, and raises what that raises. With several each shard
    has a thread: one that does not answer is told of once, by `say`, and tried again each second, and the others
    go on. `joined` is called when the lease of a shard's reader was taken, with where it stands and the length
    noted of the file; `before` before each read, in the thread of the shard.
    """

    def __init__(
        self,
        state: BlockingState,
        name: str,
        output: str,
        file: str = "",
        streams: Callable[[BlockingState], Sequence[str]] = lambda state: state.keys.streams,
        *,
        say: Callable[[str], None] = lambda text: None,
        before: Callable[[StreamReader], None] = lambda reader: None,
    ) -> None:
        self.name = name
        self.file = file
        self.readers = [StreamReader(shard, name, output, file, streams(shard)) for shard in state.shards]
        self.joined: list[StreamReader] = []
        self._say = say
        self._before = before
        self._on_join: Joined = lambda reader, stood, noted: None
        self._asked: dict[StreamReader, Future[_Answer]] = {}
        self._faults: dict[StreamReader, redis.RedisError] = {}  # of the shards that do not answer
        self._closing = threading.Event()
        self._threads: ThreadPoolExecutor | None = None

    @property
    def last(self) -> dict[str, str]:
        """The last entry that was read of each stream of all shards."""
        return {stream: at for reader in self.readers for stream, at in reader.last.items()}

    def goes_on_from(self, last: Mapping[str, str]) -> None:
        """Set where the readers stand, as far as `last` has their streams."""
        for reader in self.readers:
            reader.last |= {stream: at for stream, at in last.items() if stream in reader.last}

    @contextmanager
    def opened(self, joined: Joined) -> Iterator[None]:
        """Take the leases of all shards that answer, and give them back at the end.

        Raises:
            ReaderTaken: another process reads under this name.
            RedisError: no shard answers.

        """
        self._on_join = joined
        if len(self.readers) > 1:
            self._threads = ThreadPoolExecutor(2 * len(self.readers), "reader")
        try:
            if self._threads is None:
                [reader] = self.readers
                self._join(reader, reader.take())
            else:
                self._ask_all(self._threads, 0.0, self._await_free(self._threads))
                wait(self._asked.values())
                self._answered()
                if not self.joined:
                    raise next(iter(self._faults.values()))
            yield
        finally:
            self._closing.set()
            wait(self._asked.values(), 2 * _BLOCK_S)  # else one of them would renew what is given back
            # Where that fails, it ends by itself. Who is refused by one shard may have taken it in others.
            taken = self.joined if self._threads is None else self.readers
            list(self._each(lambda reader: reader.give_back(), taken))
            if self._threads is not None:
                self._threads.shutdown(wait=False, cancel_futures=True)

    def _await_free(self, threads: ThreadPoolExecutor) -> list[StreamReader]:
        """Wait until no other process has the lease of any shard's reader; return those that have answered.

        Before one is taken: that would end who has those of the others, but not this one, as its shard was away.
        """
        looks = {reader: threads.submit(reader.await_free) for reader in self.readers}
        for reader, look in looks.items():
            try:
                look.result()
            except redis.RedisError as error:
                self.failed(reader, error)
        return [reader for reader in self.readers if reader not in self._faults]

    def gather(self, block_s: float, *, is_following: bool = False) -> list[tuple[StreamReader, list[EventEntry]]]:
        """Return what comes next, by shard; empty when nothing came within `block_s`.

        While following it waits for no shard that does not answer.

        Raises:
            ReaderTaken, CrawlprojectError: of any shard.
            RedisError: of the only shard.

        """
        if self._threads is None:
            [reader] = self.readers
            self._before(reader)
            entries = reader.read(block_s)
            return [(reader, entries)] if entries else []
        self._ask_all(self._threads, _BLOCK_S if is_following else 0.0)
        if not is_following:
            wait(self._asked.values())
        elif wait(self._asked.values(), block_s, FIRST_COMPLETED).done:
            wait(self._asked.values(), _TOGETHER_S)
        found, has_joined = self._answered()
        if found or is_following or not has_joined:
            return found
        return self.gather(block_s)  # what has joined can be read now

    def _ask_all(
        self, threads: ThreadPoolExecutor, block_s: float, readers: Iterable[StreamReader] | None = None
    ) -> None:
        """Ask each shard of which no answer is awaited; of all, unless some are given."""
        for reader in self.readers if readers is None else readers:
            if reader not in self._asked:
                self._asked[reader] = threads.submit(self._ask, reader, block_s)

    def _answered(self) -> tuple[list[tuple[StreamReader, list[EventEntry]]], bool]:
        """Return the entries that have come, and whether the lease of any reader was taken."""
        found: list[tuple[StreamReader, list[EventEntry]]] = []
        has_joined = False
        for reader in [reader for reader, future in self._asked.items() if future.done()]:
            try:
                answer = self._asked.pop(reader).result()
            except redis.RedisError as error:
                self.failed(reader, error)
                continue
            if self._faults.pop(reader, None) is not None:
                self._say(f"{self._shown(reader)} answers again")
            if answer.taken is not None:
                self._join(reader, answer.taken)
                has_joined = True
            elif answer.entries:
                found.append((reader, answer.entries))
        return found, has_joined

    def check(self) -> None:
        """Check that each shard has answered.

        Raises:
            RedisError: one has not: its events are missing.

        """
        for reader, error in self._faults.items():
            raise redis.ConnectionError(
                f"{self._shown(reader)} does not answer ({plain(error)}), and its events are still to be read: "
                "run this again when it does"
            )

    def for_each(
        self, call: Callable[[StreamReader], None], readers: Sequence[StreamReader] | None = None
    ) -> list[StreamReader]:
        """Call something for each shard whose lease was taken, at the same time; return those that have answered.

        Raises:
            ReaderTaken: another process has taken the lease of one.
            RedisError: of the only shard.

        """
        done = []
        for reader, error in self._each(call, readers):
            if error is None:
                done.append(reader)
                continue
            if self._threads is None or not isinstance(error, redis.RedisError):
                raise error
            self.failed(reader, error)
        return done

    def failed(self, reader: StreamReader, error: redis.RedisError) -> None:
        """Note that a shard does not answer, and say so once."""
        if reader not in self._faults:
            self._say(f"{self._shown(reader)} does not answer ({plain(error)}): its events wait, the others go on")
        self._faults[reader] = error

    def _shown(self, reader: StreamReader) -> str:
        return f"shard {self.readers.index(reader)} of {len(self.readers)}"

    def _join(self, reader: StreamReader, taken: tuple[Mapping[str, str], int | None]) -> None:
        self.joined.append(reader)
        self._on_join(reader, *taken)

    def _ask(self, reader: StreamReader, block_s: float) -> _Answer:
        """Take the lease of a shard's reader, or read on."""
        if reader in self._faults and block_s:
            self._closing.wait(_AGAIN_S)
        if self._closing.is_set():
            return _Answer(None, [])
        if reader not in self.joined:
            return _Answer(reader.take(), [])
        self._before(reader)
        return _Answer(None, reader.read(block_s))

    def _each(
        self, call: Callable[[StreamReader], None], readers: Sequence[StreamReader] | None = None
    ) -> Iterator[tuple[StreamReader, Exception | None]]:
        """Yield the shards whose lease was taken, each with the error of a call, at the same time for all."""
        chosen = list(self.joined if readers is None else readers)

        def tried(reader: StreamReader) -> Exception | None:
            try:
                call(reader)
            except (redis.RedisError, ReaderTaken) as error:
                return error
            return None

        if self._threads is None:
            yield from ((reader, tried(reader)) for reader in chosen)
            return
        futures = {self._threads.submit(tried, reader): reader for reader in chosen if reader not in self._faults}
        for future, reader in futures.items():
            yield reader, future.result()
