"""The functions of the event streams' readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from crawlproject.state.scripts.runner import ScriptRunner

LEASE_S = 5.0  # that a reader's lease outlasts its holder

_TTL_US = int(LEASE_S * 1e6)


class LeaseHolder(NamedTuple):
    """Who holds the lease of a reader, for people; and in the case of another, what is left of it."""

    host: str
    pid: str
    output: str  # where the events go
    left_s: float = 0.0
    version: str = ""  # differs after each renewal


class Taken(NamedTuple):
    """A lease that was taken: where the reader stands, by stream, and how long the file was then."""

    positions: Mapping[str, str]
    length: int | None


class Lost(NamedTuple):
    """A lease that another has taken since; `length` is that of the file when its last events were noted."""

    holder: LeaseHolder
    length: int | None


class ReaderScripts(ScriptRunner):
    """The functions of the event streams' readers. Each method is one round trip.

    `reader` is a name; `holder` identifies one process, and describes it to people; `file` is the id of the file
    that is written, "" for none.
    """

    async def take_reader(self, reader: str, holder: Mapping[str, str], file: str) -> Taken | LeaseHolder:
        """Take the lease of a reader; return who holds it if that is another."""
        reply = await self._run("take_reader", reader=reader, holder=dict(holder), ttl=_TTL_US, file=file)
        kind, *rest = _decoded(reply)
        if kind == "held":
            return _held(rest)
        length, *positions = rest
        return Taken(_pairs(positions), _length(length))

    async def note_read(
        self,
        reader: str,
        holder: Mapping[str, str],
        positions: Mapping[str, str],
        *,
        file: str = "",
        length: int = 0,
        give_back: bool = False,
        replicated: bool = False,
    ) -> Lost | None:
        """Note where a reader stands, by stream, and renew its lease, or give it back.

        `length` is that of the file with these events in it. Return None, or who has taken the
        lease since: then nothing was done. Succeeds when Redis is out of memory, too, and then drops what all
        readers have read.

        `replicated`: wait until a replica has all that was written so far; on a Redis Cluster alone, of a master
        that has one.
        """
        reply = await (self._run_replicated if replicated else self._run)(
            "note_read",
            reader=reader,
            holder=dict(holder),
            ttl=0 if give_back else _TTL_US,
            positions=dict(positions),
            file=file,
            length=length,
        )
        kind, *rest = _decoded(reply)
        if kind == "noted":
            return None
        host, pid, output, length_then = rest
        return Lost(LeaseHolder(host, pid, output), _length(length_then))

    async def forget_reader(self, reader: str) -> Mapping[str, str] | LeaseHolder | None:
        """Forget a reader; return where it stood, by stream, None if there is none, or who reads as it."""
        kind, *rest = _decoded(await self._run("take_reader", reader=reader, forget=True, ttl=_TTL_US))
        if kind == "held":
            return _held(rest)
        return _pairs(rest) if kind == "forgotten" else None

    async def count_unread(self, stream: str, after: str, most: int, upto: str = "+") -> tuple[int, str]:
        """Count up to `most` entries of a stream after one, and up to one; return the id of the last, too."""
        count, last = await self._run("count_unread", stream=stream, after=after, upto=upto, most=most)
        return int(count), last.decode()


def _decoded(reply: list[bytes]) -> list[str]:
    return [item.decode(errors="surrogateescape") for item in reply]  # as `packed` encodes


def _held(reply: Sequence[str]) -> LeaseHolder:
    token, host, pid, output, left, until = reply
    return LeaseHolder(host, pid, output, int(left) / 1e6, f"{token} {until}")


def _pairs(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _length(text: str) -> int | None:
    return int(text) if text.isdigit() else None
