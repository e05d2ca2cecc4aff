"""The readers of the event streams: their names, where each stands, and who reads as it."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import redis
from redis import RedisError

from crawlproject.errors import CrawlprojectError, ReaderTaken
from crawlproject.state.client import State
from crawlproject.state.scripts.readers import LEASE_S, LeaseHolder, ReaderScripts
from crawlproject.streams.streams import EventEntry, entries_of
from crawlproject.texts import counted, printable

START = "0-0"  # where a reader stands that has read nothing

_BATCH = 1000  # entries of each stream
_COUNTED = 500  # entries counted a call: half a millisecond of Redis
_LOOK_S = 0.2  # between two looks at the lease of another
_RENEW_S = 1.0
_GIVE_BACK_S = 1.0  # for a Redis that may be away
_ENTRY_ID = re.compile(r"\d{1,16}-\d{1,16}")


def is_entry_id(text: object) -> bool:
    """Tell whether a text is the id of an entry of a stream."""
    return isinstance(text, str) and _ENTRY_ID.fullmatch(text) is not None


def is_behind(one: str, other: str) -> bool:
    """Tell whether the first of two entry ids comes before the other."""
    return _parts(one) < _parts(other)


def _parts(entry_id: str) -> tuple[int, ...]:
    return tuple(int(part) for part in entry_id.split("-")) if is_entry_id(entry_id) else (0, 0)


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
        self._told: dict[str, str] = {}  # by stream, the gap that was told of last
        self._redis: Any = state.redis
        self._reader_of = state.keys.reader_of
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
            while not renewing.done():  # on Python 3.11 the client can swallow a cancellation
                renewing.cancel()
                await asyncio.wait((renewing,), timeout=0.1)
            with suppress(RedisError, TimeoutError):  # it ends by itself
                async with asyncio.timeout(_GIVE_BACK_S):
                    await self._scripts.note_read(self.name, self._holder, {}, give_back=True)

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
        before: LeaseHolder | None = None
        while isinstance(
            taken := await self._scripts.take_reader(self.name, self._holder, self.file), LeaseHolder
        ):
            if before is not None and taken.version != before.version:
                raise ReaderTaken(
                    f"reader {self.name} is being read by {_shown(taken)}: stop that process, or read under "
                    f"another name (--reader NAME); if it ends without giving the reader back, wait "
                    f"{LEASE_S:.0f} s"
                )
            before = taken
            await asyncio.sleep(_LOOK_S)
        # what is no entry id was not written by crawlproject
        return {
            stream: at for stream, at in taken.positions.items() if stream in self.last and is_entry_id(at)
        }, taken.length

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
        await self._check_complete(infos)
        return entries

    async def _check_complete(self, infos: Sequence[Any]) -> None:
        lost: dict[str, int | None] = {}
        for stream, info in zip(self.last, infos, strict=True):
            if isinstance(info, Exception) and "no such key" not in str(info):
                raise info
            gap = await self._gap(stream, {} if isinstance(info, Exception) else info)
            if gap is not None and gap[0] != self._told.get(stream):
                self._told[stream], lost[stream] = gap
        if lost:
            raise EventsLost(self.name, lost)

    async def _gap(self, stream: str, info: Mapping[str, Any]) -> tuple[str, int | None] | None:
        """Return where a stream lacks what this reader has not read, and how many entries if Redis knows it.

        Nothing is trimmed above an entry that is there, and the last one that all have read stays.
        """
        at, length = self.last[stream], info.get("length", 0)
        newest, deleted = (
            info.get(name, b"0-0").decode() for name in ("last-generated-id", "max-deleted-entry-id")
        )
        is_cut = not length or is_behind(at, info["first-entry"][0].decode())
        if newest == at or not (is_cut or is_behind(at, deleted)):
            return None
        where = at if is_cut else deleted
        if is_behind(newest, at):  # another Redis: who goes on begins there
            if self._told.get(stream) == at:
                self.last[stream] = START
            return where, None
        added = info["entries-added"]
        noted = await self._redis.hget(self._reader_of + self.name, f"place:{stream}")
        place, _, number = (noted or b"").decode(errors="replace").partition(" ")
        if place == at and number.isdigit():
            left = length if is_cut else await _unread(self._scripts, stream, at, newest)
            count = added - int(number) - left
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
        await self._note(self.last, file=self.file, length=length)

    async def _note(self, last: Mapping[str, str], **more: Any) -> None:
        lost = await self._scripts.note_read(self.name, self._holder, last, **more)
        if lost is not None:
            raise Overtaken(self.name, lost.holder, lost.length)


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

    def __init__(self, name: str, holder: LeaseHolder, length: int | None) -> None:
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
    redis: Any = state.redis
    counted: dict[tuple[str, str], int] = {}
    found = []
    for name, positions in sorted((await _positions(state)).items()):
        raw = await redis.hgetall((state.keys.reader_of + name).encode(errors="surrogateescape"))
        noted = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in raw.items()}
        seconds, micros = await redis.time()
        until = _seconds(noted.get("until"))
        for stream, at in positions.items():
            if (stream, at) not in counted:
                counted[stream, at] = await _unread(state.scripts, stream, at)
        status = ReaderStatus(
            name,
            until is not None and until > seconds + micros / 1e6,
            noted.get("host"),
            int(noted["pid"]) if noted.get("pid", "").isdigit() else None,
            noted.get("output"),
            sum(counted[place] for place in positions.items()),
            _seconds(noted.get("since")),
            _seconds(noted.get("read")),
            positions,
        )
        found.append(status)
    return found


async def forget(state: State, name: str) -> tuple[Mapping[str, str], int]:
    """Forget a reader in all shards, so that nothing is kept, and no crawl pauses, for it.

    Return where it stood, by stream, and how many events it had not read.

    Raises:
        CrawlprojectError: there is no such reader.
        ReaderTaken: a process reads as it.

    """
    found: dict[str, str] = {}
    unread, is_known = 0, False
    for shard in state.shards:
        stood = await shard.scripts.forget_reader(name)
        if isinstance(stood, LeaseHolder):
            raise ReaderTaken(
                f"reader {name} is being read by {_shown(stood)}: stop that process first; if it has died, wait "
                f"{stood.left_s:.0f} s"
            )
        if stood is not None:
            is_known = True
            found |= stood
            unread += sum([await _unread(shard.scripts, stream, at) for stream, at in stood.items()])
    if not is_known:
        names = {reader for shard in state.shards for reader in await _positions(shard)}
        known = ", ".join(map(printable, sorted(names))) or "none"
        raise CrawlprojectError(f"there is no reader {printable(name)}; known readers: {known}")
    return found, unread


async def _positions(state: State) -> dict[str, dict[str, str]]:
    """Return where each reader stands: its name, and by stream the last entry that it has read."""
    redis: Any = state.redis
    return positions_in(await redis.hgetall(state.keys.readers))


def positions_in(stored: Mapping[bytes, bytes]) -> dict[str, dict[str, str]]:
    """Return where each reader stands, from what is in `Keys.readers`: its name, and by stream an entry id."""
    found: dict[str, dict[str, str]] = {}
    for field, at in stored.items():
        name, newline, stream = field.decode(errors="surrogateescape").rpartition("\n")
        if newline:
            found.setdefault(name, {})[stream] = at.decode(errors="replace")
    return found


async def _unread(scripts: ReaderScripts, stream: str, at: str, upto: str = "+") -> int:
    """Count the entries of a stream after one, and up to one, as many a call as do not hold Redis up."""
    count, total, at = _COUNTED, 0, at if is_entry_id(at) else START
    while count == _COUNTED:
        count, at = await scripts.count_unread(stream, at, _COUNTED, upto)
        total += count
    return total


def _seconds(micros: str | None) -> float | None:
    return int(micros) / 1e6 if micros is not None and micros.isdigit() and len(micros) < 18 else None


def _shown(holder: LeaseHolder) -> str:
    return printable(f"process {holder.pid} on {holder.host} (into {holder.output})", 1000)
