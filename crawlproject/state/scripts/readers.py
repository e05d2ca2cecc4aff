"""The functions of the event streams' readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from redis import Redis as BlockingRedis
from redis.exceptions import ResponseError

from crawlproject.state import functions
from crawlproject.state.cluster import REPLICATED_MS, check_replicated
from crawlproject.state.keys import Keys

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


class ReaderScripts:
    """The functions of the event streams' readers, who block. Each method is one round trip.

    `reader` is a name; `holder` identifies one process, and describes it to people; `file` is the id of the file
    that is written, "" for none.
    """

    def __init__(self, client: BlockingRedis, keys: Keys) -> None:
        self._client = client
        self._known = keys

    def take(self, reader: str, holder: Mapping[str, str], file: str) -> Taken | LeaseHolder:
        """Take the lease of a reader; return who holds it if that is another."""
        kind, *rest = self._take(reader, holder, file, look=False)
        if kind == "held":
            return _held_by(rest)
        length, *positions = rest
        return Taken(_pairs(positions), _length(length))

    def look(self, reader: str, holder: Mapping[str, str]) -> LeaseHolder | None:
        """Return who else holds the lease of a reader, None if it can be taken."""
        kind, *rest = self._take(reader, holder, "", look=True)
        return _held_by(rest) if kind == "held" else None

    def _take(self, reader: str, holder: Mapping[str, str], file: str, *, look: bool) -> list[str]:
        return self._run("take_reader", reader=reader, holder=dict(holder), ttl=_TTL_US, file=file, look=look)

    def note(
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
        kind, *rest = self._run(
            "note_read",
            replicated,
            reader=reader,
            holder=dict(holder),
            ttl=0 if give_back else _TTL_US,
            positions=dict(positions),
            file=file,
            length=length,
        )
        if kind == "noted":
            return None
        host, pid, output, length_then = rest
        return Lost(LeaseHolder(host, pid, output), _length(length_then))

    def forget(self, reader: str) -> Mapping[str, str] | LeaseHolder | None:
        """Forget a reader; return where it stood, by stream, None if there is none, or who reads as it."""
        kind, *rest = self._run("forget_reader", reader=reader, ttl=_TTL_US)
        if kind == "held":
            host, pid, output, left = rest
            return LeaseHolder(host, pid, output, int(left) / 1e6)
        return _pairs(rest) if kind == "forgotten" else None

    def count_unread(self, stream: str, after: str, most: int, upto: str = "+") -> tuple[int, str]:
        """Count up to `most` entries of a stream after one, and up to one; return the id of the last, too."""
        count, last = self._run("count_unread", stream=stream, after=after, upto=upto, most=most)
        return int(count), last

    def _run(self, verb: str, replicated: bool = False, /, **arguments: Any) -> list[str]:
        command = functions.command(verb, self._known, arguments)
        reply: list[bytes | int]
        if replicated:
            try:
                reply, confirmed = self._confirmed(command)
            except ResponseError as error:
                if not functions.is_missing(error):
                    raise
                functions.load_blocking(self._client)
                reply, confirmed = self._confirmed(command)
            check_replicated(verb, confirmed)
        else:
            reply = functions.call_blocking(self._client, command)
        # surrogateescape: see `packed`
        return [str(item) if isinstance(item, int) else item.decode(errors="surrogateescape") for item in reply]

    def _confirmed(self, command: tuple[Any, ...]) -> list[Any]:
        """Return what a function replies, and how many replicas have what it wrote."""
        with self._client.pipeline(transaction=False) as pipe:  # one connection: WAIT counts what that wrote
            pipe.execute_command(*command)  # type: ignore[no-untyped-call]
            pipe.execute_command("WAIT", 1, REPLICATED_MS)  # type: ignore[no-untyped-call]
            return list(pipe.execute())


def _held_by(said: list[str]) -> LeaseHolder:
    token, host, pid, output, left, until = said
    return LeaseHolder(host, pid, output, int(left) / 1e6, f"{token} {until}")


def _pairs(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _length(text: str) -> int | None:
    return int(text) if text.isdigit() else None
