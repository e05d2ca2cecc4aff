"""What is counted and noted of each source. A value that we did not write counts as none."""

from __future__ import annotations

import msgpack

from crawlproject.state.calls.sources import fetches_in
from crawlproject.state.client import State

_PAGE = 1000  # sources a call


def counts_in(packed: bytes | None) -> dict[str, int]:
    """Return the counts of a source, as Redis has them."""
    return {} if packed is None else dict(msgpack.unpackb(packed))


async def read_all_fetches(state: State) -> dict[str, list[int]]:
    """Return `SourceStatus.fetches` of each source that has a fetch among its last ones."""
    found: dict[str, list[int]] = {}
    cursor, more = 0, True
    while more:
        cursor, page = await state.redis.zscan(state.keys.active, cursor, count=_PAGE)
        names = [name for name, _ in page]
        windows = await state.redis.mget([state.keys.window_of.encode() + name for name in names]) if names else ()
        for name, window in zip(names, windows, strict=True):
            fetches = fetches_in(msgpack.unpackb(window, raw=True)[b"fetches"] if window else b"")
            if fetches:
                found[name.decode(errors="replace")] = fetches
        more = cursor != 0
    return found
