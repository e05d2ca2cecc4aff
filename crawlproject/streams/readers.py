"""The readers of the event streams: their names, where each stands, and who reads as it."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import redis
from redis import RedisError

from crawlproject.errors import CrawlprojectError, ReaderTaken
from crawlproject.state.calls.readers import LEASE_S, Held, ReaderRecord
from crawlproject.state.client import State
from crawlproject.streams.streams import START, EventEntry, entries_of
from crawlproject.texts import counted, printable
from crawlproject.threads import end

MOST_READERS = 20  # of which it is shown how far they are behind: those furthest

_BATCH = 1000  # entries of each stream
_LOOK_S = 0.2  # between two looks at the lease of another
_RENEW_S = 1.0
_GIVE_BACK_S = 1.0  # for a Redis that may be away
_ENTRY_ID = re.compile(r"\d{1,16}-\d{1,16}")


def is_entry_id(text: object) -> bool:
    """Tell whether a text is the id of an entry of a stream."""
    return isinstance(text, str) and _ENTRY_ID.fullmatch(text) is not None


def is_behind(one: str, other: str) -> bool:
    """Tell whether the first of two entry ids comes before the other."""
    return order(one) < order(other)


def order(entry_id: str) -> tuple[int, ...]:
    """Return what entry ids are sorted by."""
    return tuple(map(int, entry_id.split("-")))


class _Stream:
    """A stream as Redis describes it."""

    def __init__(self, info: Any) -> None:  # the answer to XINFO STREAM
        if isinstance(info, Exception):
            if "no such key" not in str(info):
                raise info
            info = {}
        self.length: int = info.get("length", 0)
        self.added: int = info.get("entries-added", 0)
        self.newest, self.deleted = (
            info.get(name, b"0-0").decode() for name in ("last-generated-id", "max-deleted-entry-id")
        )
        self.first: str | None = info["first-entry"][0].decode() if self.length else None

    def number(self, at: str, noted: int | None) -> int | None:
        """Return how many entries there were up to one, None if it is not known."""
        return self.added if at == self.newest else noted

    def unread(self, at: str, noted: int | None) -> int:
        """Return how many entries come after one; of a reader that nothing is known of, all there are."""
        number = self.number(at, noted)
        return self.length if number is None else max(min(self.added - number, self.length), 0)


class StreamReader:
    """Reads event streams of a shard, all of them unless some are given, from where it stands.

    It tells Redis where that is: what is above is kept.

    One process at a time reads under one name: the holder of its lease, which ends a few seconds after the holder
    has renewed it for the last time. Each note of where the reader stands renews it, and is refused when another
    has taken it since: so a process that hung never moves a reader that is another's by now.
    """

    def __init__(self, state: State, name: str, output: str, file: str = "", streams: Sequence[str] = ()) -> None:
        self.name = name
        self.file = file  # id of the file, or dataset, that is written
        self.last = dict.fromkeys(streams or state.keys.streams, START)
        self._numbers: dict[str, dict[str, int]] = {stream: {} for stream in self.last}  # of entries, where known
        self._told: dict[str, str] = {}  # by stream, the gap that was told of last
        self._redis: Any = state.redis
        self._scripts = state.scripts
        self._holder = {
            "holder": secrets.token_hex(8),
            "host": socket.gethostname(),
            "pid": str(os.getpid()),
            "output": output,
        }

    @asynccontextmanager
    async def held(self) -> AsyncIterator[tuple[Mapping[str, str], int | None]]:
        """Take the lease, as `take` does, keep it while the block runs, and let another process have it then."""
        taken = await self.take()
        renewing = asyncio.create_task(self._keep())
        try:
            yield taken
        finally:
            await end(renewing)
            with suppress(RedisError, TimeoutError):  # it ends by itself
                async with asyncio.timeout(_GIVE_BACK_S):
                    await self._scripts.note_read(self.name, self._holder, {}, {}, give_back=True)

    async def _keep(self) -> None:
        """Renew the lease while something else takes long."""
        while True:
            await asyncio.sleep(_RENEW_S)
            try:
                await self.renew()
            except Overtaken:
                return  # who reads and notes learns of it, too
            except RedisError:
                continue

    async def take(self) -> tuple[Mapping[str, str], int | None]:
        """Take the lease; return where the reader stands, by stream, and the length noted of its file.

        Waits for the lease of a process that died, which is not renewed any more: a few seconds.

        Raises:
            ReaderTaken: another process reads under this name.

        """
        before: Held | None = None
        while isinstance(taken := await self._scripts.take_reader(self.name, self._holder), Held):
            if before is not None and (taken.by.holder, taken.by.until) != (before.by.holder, before.by.until):
                raise ReaderTaken(
                    f"reader {self.name} is being read by {_shown(taken.by)}: stop that process, or read under "
                    f"another name (--reader NAME); if it ends without giving the reader back, wait "
                    f"{LEASE_S:.0f} s"
                )
            before = taken
            await asyncio.sleep(_LOOK_S)
        stood = {stream: at for stream, at in taken.last.items() if stream in self.last}
        self._numbers = {
            stream: {stood[stream]: taken.numbers[stream]} if stream in taken.numbers else {}
            for stream in self.last
        }
        if new := [stream for stream in self.last if stream not in stood]:
            for stream, info in (await _streams_of(self._redis, new)).items():
                self._numbers[stream][START] = info.added - info.length
        return stood, taken.lengths.get(self.file)

    async def read(self, block_s: float = 0.0) -> list[EventEntry]:
        """Return what comes next, empty when nothing came within `block_s`. The reader stays where it is.

        Keeps the lease. On a Redis Cluster a replica has what is returned, too: a fail-over makes none of it
        undone, to come again.

        Raises:
            Overtaken: another process has taken the lease: what comes next is its own.
            EventsLost: some of what comes next is gone. The next call goes on behind it.
            redis.ConnectionError: what was read is not there any more.

        """
        answer = await self._redis.xread(dict(self.last), count=_BATCH, block=int(block_s * 1000) or None)
        entries = list(entries_of(answer))
        await self._note({}, replicated=bool(entries))
        newest = {entry.stream: entry.id for entry in entries}
        async with self._redis.pipeline(transaction=False) as pipe:
            for stream in self.last:
                pipe.xinfo_stream(stream)
            for stream, at in newest.items():
                pipe.xrange(stream, at, at)
            answers = await pipe.execute(raise_on_error=False)
        infos, kept = answers[: len(self.last)], answers[len(self.last) :]
        # A master that hung, and was replaced meanwhile, carries out what had come to it before it hears of that:
        # events of these calls are lost, and come again.
        if not all(kept):
            raise redis.ConnectionError("another node has taken over, without what was read last")
        lost: dict[str, int | None] = {}
        for stream, info in zip(list(self.last), map(_Stream, infos), strict=True):
            gap = self._gap(stream, info)
            if gap is not None and gap[0] != self._told.get(stream):
                self._told[stream], lost[stream] = gap
            self._number(stream, info, [entry.id for entry in entries if entry.stream == stream])
        if lost:
            raise EventsLost(self.name, lost)
        return entries

    def _number(self, stream: str, info: _Stream, ids: list[str]) -> None:
        """Number what was read, and where the reader stands."""
        at = self.last[stream]
        number = info.number(at, self._numbers[stream].get(at))
        found = {} if number is None else {one: number + index for index, one in enumerate([at, *ids])}
        if ids and ids[-1] == info.newest:
            found[ids[-1]] = info.added
        if found:
            self._numbers[stream] = found

    def _gap(self, stream: str, info: _Stream) -> tuple[str, int | None] | None:
        """Return where a stream lacks what this reader has not read, and how many entries if that is known.

        Nothing is trimmed above an entry that is there, and the last one that all have read stays.
        """
        at = self.last[stream]
        is_cut = info.first is None or is_behind(at, info.first)
        if info.newest == at or not (is_cut or is_behind(at, info.deleted)):
            return None
        where = at if is_cut else info.deleted
        if is_behind(info.newest, at):  # another Redis: who goes on begins there
            if self._told.get(stream) == at:
                self.last[stream] = START
            return where, None
        number = self._numbers[stream].get(at)
        if is_cut and number is not None:
            count = info.added - number - info.length
            return (where, count) if count > 0 else None
        return None if at == START else (where, None)  # a new reader has not missed anything

    async def renew(self) -> None:
        """Keep the lease.

        Raises:
            Overtaken: another process has taken it.

        """
        await self._note({})

    async def note(self, length: int = 0) -> None:
        """Tell Redis what need not be kept for this reader, and keep the lease, in one step.

        A lease that has ended, as after an outage of Redis, is kept if no other process has taken it.
        `length` is that of the file with all of it.

        Raises:
            Overtaken: another process has taken the lease: nothing was done.

        """
        await self._note(self.last, length=length, file=self.file)

    async def _note(self, last: Mapping[str, str], **more: Any) -> None:
        found = {stream: self._numbers[stream].get(at) for stream, at in last.items()}
        numbers = {stream: number for stream, number in found.items() if number is not None}
        by = await self._scripts.note_read(self.name, self._holder, last, numbers, **more)
        if by is not None:
            raise Overtaken(self.name, by, by.lengths.get(self.file))


class EventsLost(CrawlprojectError):
    """Events that a reader has not read are gone from Redis; `lost` says which, and how many if known."""

    def __init__(self, name: str, lost: Mapping[str, int | None]) -> None:
        of = (
            f"{'an unknown number of events' if n is None else counted(n, 'event')} of {s}"
            for s, n in lost.items()
        )
        self.lost = " and ".join(of)
        super().__init__(
            f"gone from Redis before reader {printable(name)} has read them: {self.lost} (deleted by hand, or by "
            "CRAWL_EVENTS_UNREAD=drop, or REDIS_URL leads to another Redis): restore them, or go on without them "
            "(--skip-lost)"
        )


class Overtaken(ReaderTaken):
    """Another process has taken the lease; `length` is that of the file when its last events were noted."""

    def __init__(self, name: str, holder: ReaderRecord, length: int | None) -> None:
        super().__init__(
            f"reader {name} was taken over by {_shown(holder)}, as this process had not run for {LEASE_S:.0f} s: "
            "it ends, and the other goes on"
        )
        self.length = length


class ReaderStatus(NamedTuple):
    """A reader, for people and machines; times in seconds since 1970, None if unknown."""

    name: str
    reading: bool  # whether a process reads as it at present
    host: str | None  # of the process that reads as it, or did last
    pid: int | None
    output: str | None  # the file that it writes, or Kafka
    behind: int  # events that it has not read
    since: float | None  # when that process began
    last_read: float | None
    positions: Mapping[str, str]  # the last entry that it has read, by stream


async def readers(state: State) -> list[ReaderStatus]:
    """Return the readers of a shard, by name."""
    packed = await state.redis.hgetall(state.keys.readers)
    seconds, micros = await state.redis.time()
    streams = await _streams_of(state.redis, state.keys.streams)
    found = []
    for name, one in sorted(
        (name.decode(errors="surrogateescape"), ReaderRecord.of(packed[name])) for name in packed
    ):
        status = ReaderStatus(
            name,
            one.until is not None and one.until > seconds * 1_000_000 + micros,
            one.host,
            int(one.pid) if one.pid else None,
            one.output,
            sum(streams[stream].unread(at, one.numbers.get(stream)) for stream, at in one.last.items()),
            _seconds(one.since),
            _seconds(one.read),
            one.last,
        )
        found.append(status)
    return found


async def _streams_of(redis: Any, names: Sequence[str]) -> dict[str, _Stream]:
    async with redis.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.xinfo_stream(name)
        return dict(zip(names, map(_Stream, await pipe.execute(raise_on_error=False)), strict=True))


async def furthest_behind(state: State) -> dict[str, int]:
    """Return how many events readers of a shard have not read, by printable name: of the 20 furthest behind."""
    unread = Counter[str]()
    for one in await readers(state):
        unread[printable(one.name)] += one.behind
    return dict(unread.most_common(MOST_READERS))


async def count_without_reader(state: State) -> int:
    """Return the events of a shard in streams that have no reader."""
    read = {stream for one in await readers(state) for stream in one.positions}
    return sum([await state.redis.xlen(stream) for stream in state.keys.streams if stream not in read])


async def forget(state: State, name: str) -> tuple[Mapping[str, str], int]:
    """Forget a reader in all shards, so that nothing is kept, and no crawl pauses, for it.

    Return where it stood, by stream, and how many events it had not read.

    Raises:
        CrawlprojectError: there is no such reader.
        ReaderTaken: a process reads as it.

    """
    found: dict[str, str] = {}
    unread, known = 0, set[str]()
    for shard in state.shards:
        before = {one.name: one.behind for one in await readers(shard)}
        known |= before.keys()
        stood = await shard.scripts.forget_reader(name)
        if isinstance(stood, Held):
            raise ReaderTaken(
                f"reader {name} is being read by {_shown(stood.by)}: stop that process first; if it has died, "
                f"wait {stood.left_s:.0f} s"
            )
        if stood is not None and name in before:
            found |= stood.last
            unread += before[name]
    if name not in known:
        names = ", ".join(map(printable, sorted(known))) or "none"
        raise CrawlprojectError(f"there is no reader {printable(name)}; known readers: {names}")
    return found, unread


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6


def _shown(holder: ReaderRecord) -> str:
    return printable(f"process {holder.pid} on {holder.host} (into {holder.output})", 1000)
