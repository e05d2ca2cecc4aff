"""The functions of the event streams' readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack

from crawlproject.state.functions import Caller

LEASE_S = 5.0  # that a reader's lease outlasts its holder

_TTL_US = int(LEASE_S * 1e6)


@dataclass(frozen=True)
class ReaderRecord:
    """What Redis knows of a reader; times in microseconds since 1970, None if unknown.

    `holder` is one process, on `host`: the one that reads as it, or did last, into `output`. `until` is when its
    lease ends. `last` is the id of the last entry read of each stream, `numbers` how many entries there were up to
    that, where it is known, `lengths` how long each file was, by its id, when its last events were noted.
    """

    holder: str = ""
    host: str | None = None
    pid: str | None = None
    output: str | None = None
    since: int | None = None
    until: int | None = None
    read: int | None = None
    last: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, packed: bytes) -> ReaderRecord:
        """Return the record that the Lua module `readers` has packed."""
        fields = msgpack.unpackb(packed, unicode_errors="surrogateescape")  # as `functions.packed` encodes
        return cls(**fields | {name: dict(fields[name]) for name in ("last", "numbers", "lengths")})


@dataclass(frozen=True)
class Held:
    """A lease that another process has, for `left_s` seconds."""

    by: ReaderRecord
    left_s: float


class ReaderScripts(Caller):
    """The functions of the event streams' readers. Each method is one round trip.

    `reader` is a name; `holder` identifies one process, and describes it to people.
    """

    async def take_reader(self, reader: str, holder: Mapping[str, str]) -> ReaderRecord | Held:
        """Take the lease of a reader; return who holds it if that is another."""
        found = _record(await self._run("take_reader", reader=reader, holder=dict(holder), ttl=_TTL_US))
        assert found is not None
        return found

    async def note_read(
        self,
        reader: str,
        holder: Mapping[str, str],
        last: Mapping[str, str],
        numbers: Mapping[str, int],
        *,
        file: str = "",
        length: int = 0,
        give_back: bool = False,
        replicated: bool = False,
    ) -> ReaderRecord | None:
        """Note where a reader stands, by stream, and renew its lease, or give it back.

        `file` is the id of the file that is written, "" for none, `length` that of the file with these events in
        it. Return None, or who has taken the lease since: then nothing was done. Succeeds when Redis is out of
        memory, too, and then drops what all readers have read.

        `replicated`: wait until a replica has all that was written so far; on a Redis Cluster alone, of a master
        that has one.
        """
        reply = await self._run(
            "note_read",
            replicated,
            reader=reader,
            holder=dict(holder),
            ttl=0 if give_back else _TTL_US,
            last=dict(last),
            numbers=dict(numbers),
            file=file,
            length=length,
        )
        return None if reply is None else ReaderRecord.of(reply)

    async def forget_reader(self, reader: str) -> ReaderRecord | Held | None:
        """Forget a reader; return what was known of it, None if there is none, or who reads as it."""
        return _record(await self._run("take_reader", reader=reader, forget=True, ttl=_TTL_US))


def _record(reply: list[Any]) -> ReaderRecord | Held | None:
    """Return what take_reader.lua has answered."""
    kind, *rest = reply
    if kind == b"held":
        return Held(ReaderRecord.of(rest[0]), int(rest[1]) / 1e6)
    return ReaderRecord.of(rest[0]) if rest else None
