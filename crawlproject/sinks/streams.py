"""The event streams, as their readers see them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import redis

from crawlproject.state.keys import Keys
from crawlproject.state.scripts import ReaderScript

_BATCH = 1000  # entries of each stream


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
    """Reads all event streams from where it stands, and tells Redis where that is: what is above is kept."""

    def __init__(self, client: redis.Redis, keys: Keys, name: str) -> None:
        self.client = client
        self.keys = keys
        self.name = name
        self.script = ReaderScript(client, keys)
        self.last = dict.fromkeys(keys.streams, "0-0")

    def read(self, block: float = 0.0) -> list[Entry]:
        """Return what comes next, empty when nothing came within `block` seconds. The reader stays where it is."""
        answer = self.client.xread(
            {stream: self.last[stream] for stream in self.keys.streams},
            count=_BATCH,
            block=int(block * 1000) or None,
        )
        return list(_entries(answer))

    def positions(self) -> dict[str, str]:
        """Return what stands in Redis for this reader, by field."""
        return {f"{self.name}\n{stream}": at for stream, at in self.last.items()}

    def announce(self) -> None:
        """Tell Redis what need not be kept for this reader."""
        self.script.note(self.positions())

    def forget(self) -> None:
        """Take this reader's position out of Redis, so that nothing is kept, and no crawl pauses, for it."""
        self.client.hdel(self.keys.readers, *self.positions())


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
