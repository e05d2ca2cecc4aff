"""The readers of the event streams: their names, where each stands, and who reads as it."""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import redis
from redis import RedisError

from crawlproject.errors import CrawlprojectError, ReaderTaken
from crawlproject.state.client import BlockingState
from crawlproject.state.cluster import has_replica, topology_of
from crawlproject.state.health import plain
from crawlproject.state.scripts.readers import LEASE_S, LeaseHolder, ReaderScripts
from crawlproject.state.streams import EventEntry, entries_of
from crawlproject.texts import counted, printable

T = TypeVar("T")

START = "0-0"  # where a reader stands that has read nothing

_BATCH = 1000  # entries of each stream
_COUNTED = 500  # entries counted a call: half a millisecond of Redis
_LOOK_S = 0.2  # between two looks at the lease of another
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
    """Reads event streams, all of them unless some are given, from where it stands.

    It tells Redis where that is: what is above is kept.

    One process at a time reads under one name: the holder of its lease, which ends a few seconds after the holder
    has renewed it for the last time. Each note of where the reader stands renews it, and is refused when another
    has taken it since: so a process that hung never moves a reader that is another's by now.
    """

    def __init__(
        self, state: BlockingState, name: str, output: str, file: str = "", streams: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.file = file  # id of the file, or dataset, that is written
        self.last = dict.fromkeys(streams or state.keys.streams, START)
        self._told: dict[str, str] = {}  # by stream, the gap that was told of last
        self._redis = state.redis
        self._reader_of = state.keys.reader_of
        self._scripts = ReaderScripts(state.redis, state.keys)
        self._holder = {
            "holder": secrets.token_hex(8),
            "host": socket.gethostname(),
            "pid": str(os.getpid()),
            "output": output,
        }

    def take(self) -> tuple[Mapping[str, str], int | None]:
        """Take the lease; return where the reader stands, by stream, and the length noted of its file.

        Waits for the lease of a process that died, which is not renewed any more: a few seconds.

        Raises:
            ReaderTaken: another process reads under this name.

        """
        taken = self._when_free(lambda: self._scripts.take(self.name, self._holder, self.file))
        # what is no entry id was not written by crawlproject
        return {
            stream: at for stream, at in taken.positions.items() if stream in self.last and is_entry_id(at)
        }, taken.length

    def await_free(self) -> None:
        """Wait until no other process has the lease, as `take` does, and leave it there.

        Raises:
            ReaderTaken: another process reads under this name.

        """
        self._when_free(lambda: self._scripts.look(self.name, self._holder))

    def _when_free(self, ask: Callable[[], T | LeaseHolder]) -> T:
        before: LeaseHolder | None = None
        while isinstance(answer := ask(), LeaseHolder):
            if before is not None and answer.version != before.version:
                raise ReaderTaken(
                    f"reader {self.name} is being read by {_shown(answer)}: stop that process, or read under "
                    f"another name (--reader NAME); if it ends without giving the reader back, wait "
                    f"{LEASE_S:.0f} s"
                )
            before = answer
            time.sleep(_LOOK_S)
        return answer

    def read(self, block_s: float = 0.0) -> list[EventEntry]:
        """Return what comes next, empty when nothing came within `block_s`. The reader stays where it is.

        On a Redis Cluster a replica has it, too: a fail-over makes none of it undone, to come again.

        Raises:
            Overtaken: another process has taken the lease.
            EventsLost: some of what comes next is gone. The next call goes on behind it.
            redis.ConnectionError: what was read is not there any more.

        """
        places: dict[Any, Any] = dict(self.last)
        answer = self._redis.xread(places, count=_BATCH, block=int(block_s * 1000) or None)
        entries = list(entries_of(answer))
        if entries and topology_of(self._redis) is not None:
            if has_replica(self._redis):
                self._refused(self._scripts.note(self.name, self._holder, {}, replicated=True))
            self._check_kept(entries)
        self._check_complete()
        return entries

    def _check_complete(self) -> None:
        with self._redis.pipeline(transaction=False) as pipe:
            for stream in self.last:
                pipe.xinfo_stream(stream)
            infos = pipe.execute(raise_on_error=False)
        lost: dict[str, int | None] = {}
        for stream, info in zip(self.last, infos, strict=True):
            if isinstance(info, Exception) and "no such key" not in str(info):
                raise info
            gap = self._gap(stream, {} if isinstance(info, Exception) else info)
            if gap is not None and gap[0] != self._told.get(stream):
                self._told[stream], lost[stream] = gap
        if lost:
            raise EventsLost(self.name, lost)

    def _gap(self, stream: str, info: Mapping[str, Any]) -> tuple[str, int | None] | None:
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
        noted: Any = self._redis.hget(self._reader_of + self.name, f"place:{stream}")
        place, _, number = (noted or b"").decode(errors="replace").partition(" ")
        if place == at and number.isdigit():
            left = length if is_cut else _unread(self._scripts, stream, at, newest)
            count = added - int(number) - left
            return (where, count) if count > 0 else None
        return None if at == START else (where, None)  # a new reader has not missed anything

    def _check_kept(self, entries: Iterable[EventEntry]) -> None:
        """Check that the node which has said that its replica has all is one that has what was read.

        A master that hung, and was replaced meanwhile, carries out what had come to it before it hears of that:
        events of these calls are lost, and come again.

        Raises:
            redis.ConnectionError: it is another one.

        """
        with self._redis.pipeline(transaction=False) as pipe:
            for stream, last in {entry.stream: entry.id for entry in entries}.items():
                pipe.xrange(stream, last, last)
            if not all(pipe.execute()):
                raise redis.ConnectionError("another node has taken over, without what was read last")

    def noted_length(self, reader: str) -> int | None:
        """Return how long this file was when its last events were noted under another name, None if never."""
        noted: Any = self._redis.hget(self._reader_of + reader, f"length:{self.file}")
        return int(noted) if noted is not None and noted.isdigit() else None

    def renew(self) -> None:
        """Keep the lease.

        Raises:
            Overtaken: another process has taken it.

        """
        self._refused(self._scripts.note(self.name, self._holder, {}))

    def note(self, length: int = 0) -> None:
        """Tell Redis what need not be kept for this reader, and keep the lease, in one step.

        A lease that has ended, as after an outage of Redis, is kept if no other process has taken it.
        `length` is that of the file with all of it.

        Raises:
            Overtaken: another process has taken the lease: nothing was done.

        """
        self.note_at(self.last, length)

    def note_at(self, last: Mapping[str, str], length: int) -> None:
        """Do what `note` does for another position: the last entry of each stream."""
        self._refused(self._scripts.note(self.name, self._holder, last, file=self.file, length=length))

    def give_back(self) -> None:
        """Let another process read under this name at once."""
        self._scripts.note(self.name, self._holder, {}, give_back=True)

    def _refused(self, lost: Any) -> None:
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


def readers(state: BlockingState) -> Iterator[ReaderStatus]:
    """Yield all readers, by name."""
    counted: dict[tuple[str, str], int] = {}
    scripts = ReaderScripts(state.redis, state.keys)
    for name, positions in sorted(_positions(state).items()):
        raw: Any = state.redis.hgetall((state.keys.reader_of + name).encode(errors="surrogateescape"))
        noted = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in raw.items()}
        seconds, micros = state.redis.time()
        until = _seconds(noted.get("until"))
        for stream, at in positions.items():
            if (stream, at) not in counted:
                counted[stream, at] = _unread(scripts, stream, at)
        yield ReaderStatus(
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


def readers_of_all(state: BlockingState) -> tuple[list[ReaderStatus], list[tuple[BlockingState, str]]]:
    """Return all readers, by name, each with what it has read and not read in all shards; and what is wrong with
    the shards that do not answer.

    Raises:
        RedisError: of the only shard.

    """
    found: dict[str, ReaderStatus] = {}
    away: list[tuple[BlockingState, str]] = []
    for shard in state.shards:
        try:
            there = list(readers(shard))
        except RedisError as error:
            if state.count == 1:
                raise
            away.append((shard, plain(error)))
            continue
        for one in there:
            before = found.get(one.name)
            found[one.name] = one if before is None else _together(before, one)
    return [found[name] for name in sorted(found)], away


def _together(one: ReaderStatus, other: ReaderStatus) -> ReaderStatus:
    """Return the status of a reader of two shards."""
    newer = max(one, other, key=lambda status: status.since or 0.0)
    return newer._replace(
        reading=one.reading or other.reading,
        behind=one.behind + other.behind,
        last_read=max((read for read in (one.last_read, other.last_read) if read is not None), default=None),
        positions={**one.positions, **other.positions},
    )


def forget(state: BlockingState, name: str) -> tuple[Mapping[str, str], int]:
    """Forget a reader, so that nothing is kept, and no crawl pauses, for it.

    Return where it stood, by stream, and how many events it had not read.

    Raises:
        CrawlprojectError: there is no such reader.
        ReaderTaken: a process reads as it.

    """
    found: dict[str, str] = {}
    unread, is_known = 0, False
    for shard in state.shards:
        scripts = ReaderScripts(shard.redis, shard.keys)
        stood = scripts.forget(name)
        if isinstance(stood, LeaseHolder):
            raise ReaderTaken(
                f"reader {name} is being read by {_shown(stood)}: stop that process first; if it has died, wait "
                f"{stood.left_s:.0f} s"
            )
        if stood is not None:
            is_known = True
            found |= stood
            unread += sum(_unread(scripts, stream, at) for stream, at in stood.items())
    if not is_known:
        names = {reader for shard in state.shards for reader in _positions(shard)}
        known = ", ".join(map(printable, sorted(names))) or "none"
        raise CrawlprojectError(f"there is no reader {printable(name)}; known readers: {known}")
    return found, unread


def _positions(state: BlockingState) -> dict[str, dict[str, str]]:
    """Return where each reader stands: its name, and by stream the last entry that it has read."""
    stored: Any = state.redis.hgetall(state.keys.readers)
    return positions_in(stored)


def positions_in(stored: Mapping[bytes, bytes]) -> dict[str, dict[str, str]]:
    """Return where each reader stands, from what is in `Keys.readers`: its name, and by stream an entry id."""
    found: dict[str, dict[str, str]] = {}
    for field, at in stored.items():
        name, newline, stream = field.decode(errors="surrogateescape").rpartition("\n")
        if newline:
            found.setdefault(name, {})[stream] = at.decode(errors="replace")
    return found


def _unread(scripts: ReaderScripts, stream: str, at: str, upto: str = "+") -> int:
    """Count the entries of a stream after one, and up to one, as many a call as do not hold Redis up."""
    count, total, at = _COUNTED, 0, at if is_entry_id(at) else START
    while count == _COUNTED:
        count, at = scripts.count_unread(stream, at, _COUNTED, upto)
        total += count
    return total


def _seconds(micros: str | None) -> float | None:
    return int(micros) / 1e6 if micros is not None and micros.isdigit() and len(micros) < 18 else None


def _shown(holder: LeaseHolder) -> str:
    return printable(f"process {holder.pid} on {holder.host} (into {holder.output})", 1000)
