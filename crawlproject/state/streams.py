"""The streams in Redis: events with their readers, and dead letters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from crawlproject.state.client import BlockingState
from crawlproject.state.scripts import ReaderScript

_BATCH = 1000  # entries of each stream
_PAGE = 500  # dead letters a call
_TURN_MS = 10_000  # that a turn outlasts its holder
_ENTRY_ID = re.compile(r"\d{1,16}-\d{1,16}")


class Entry(NamedTuple):
    """An entry of a stream; `event` is the event's JSON, if it is one of ours."""

    stream: str
    id: str
    event: bytes | None

    @property
    def name(self) -> str:
        """The event's name."""
        return self.stream.rpartition(":")[2]


class StreamReader:
    """Reads all event streams from where it stands, and tells Redis where that is: what is above is kept.

    Where several processes are one reader they take turns: a turn is the token of the process that has it.
    """

    def __init__(self, state: BlockingState, name: str) -> None:
        self.name = name
        self.last = dict.fromkeys(state.keys.streams, "0-0")
        self._redis = state.redis
        self._readers = state.keys.readers
        self._script = ReaderScript(state.redis, state.keys)

    def resume(self) -> None:
        """Go on from where Redis says that this reader stands."""
        stored: Any = self._redis.hmget(self._readers, list(self._positions()))
        for stream, at in zip(self.last, stored, strict=True):
            if at is not None and _ENTRY_ID.fullmatch(at.decode("utf-8", "replace")):
                self.last[stream] = at.decode()

    def read(self, block_s: float = 0.0) -> list[Entry]:
        """Return what comes next, empty when nothing came within `block_s`. The reader stays where it is."""
        places: dict[Any, Any] = dict(self.last)
        answer = self._redis.xread(places, count=_BATCH, block=int(block_s * 1000) or None)
        return list(_entries(answer))

    def announce(self) -> None:
        """Tell Redis what need not be kept for this reader."""
        self._script.note(self._positions())

    def forget(self) -> None:
        """Take this reader's position out of Redis, so that nothing is kept, and no crawl pauses, for it."""
        self._redis.hdel(self._readers, *self._positions())

    def take_turn(self, turn: str) -> str:
        """Take the turn, for ten seconds; return "", or the token of the process that has it."""
        return self._script.note({}, turn, _TURN_MS)

    def announce_in_turn(self, turn: str) -> str:
        """Announce and keep the turn, in one step; return "", or who has the turn: then nothing was done."""
        return self._script.note(self._positions(), turn, _TURN_MS)

    def give_turn_back(self, turn: str) -> None:
        """Let another process have the turn at once."""
        self._script.note({}, turn, 0)

    def _positions(self) -> dict[str, str]:
        """Return what stands in Redis for this reader, by field."""
        return {f"{self.name}\n{stream}": at for stream, at in self.last.items()}


def event_of(entry: Entry) -> dict[str, Any] | None:
    """Return the event of an entry, None if it is not the one JSON object that it should be."""
    try:
        data = json.loads(entry.event or b"")
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and "event" not in data else None


def _entries(answer: Any) -> Iterator[Entry]:
    """Yield the entries of an XREAD's answer: a map of pages in RESP3, a list of pairs in RESP2."""
    pairs = answer.items() if isinstance(answer, dict) else answer or ()
    for stream, page in pairs:
        entries = page[0] if page and isinstance(page[0], list) else page
        for at, fields in entries:
            yield Entry(stream.decode(), at.decode(), fields.get(b"event"))


def dead_letters(state: BlockingState) -> Iterator[tuple[str, dict[bytes, bytes]]]:
    """Yield the dead letters that there are now, the oldest first: the id of each entry, and its fields."""
    client, dead = state.redis, state.keys.dead
    newest = cast("list[Any]", client.xrevrange(dead, count=1))
    if not newest:
        return
    last, start = newest[0][0], b"-"
    while True:
        page = cast("list[tuple[bytes, dict[bytes, bytes]]]", client.xrange(dead, start, last, count=_PAGE))
        for at, fields in page:
            yield at.decode(), fields
        if len(page) < _PAGE:
            return
        start = b"(" + page[-1][0]
