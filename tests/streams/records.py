"""What Redis knows of the readers of events."""

from __future__ import annotations

from typing import Any

import msgpack

from crawlproject.state.calls.readers import ReaderRecord
from crawlproject.state.keys import Keys


def record(client: Any, name: str, keys: Keys) -> ReaderRecord:
    """Return what is known of a reader."""
    packed = client.hget(keys.readers, name)
    return ReaderRecord() if packed is None else ReaderRecord.of(packed)


def records(client: Any, keys: Keys) -> dict[str, ReaderRecord]:
    """Return what is known of all readers."""
    return {name.decode(): ReaderRecord.of(packed) for name, packed in client.hgetall(keys.readers).items()}


def write(client: Any, name: str, keys: Keys, **fields: Any) -> None:
    """Change what is known of a reader, or make it known."""
    before = client.hget(keys.readers, name)
    found = {"last": {}, "numbers": {}, "lengths": {}} if before is None else msgpack.unpackb(before)
    client.hset(keys.readers, name, packed(**found | fields))


def packed(**fields: Any) -> bytes:
    """Return a record as it is stored."""
    found: bytes = msgpack.packb({"last": {}, "numbers": {}, "lengths": {}} | fields, use_bin_type=False)
    return found
