"""What is counted and noted of each source. A value that we did not write counts as none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgpack

from crawlproject.state.calls import LATENCY_BOUNDS
from crawlproject.state.client import State

_PAGE = 1000  # sources a call


async def read_counts(state: State, sources: Sequence[str]) -> list[Counter[str]]:
    """Return the counts of each of `sources`; see `Keys.counts`."""
    return [Counter(counts_in(packed)) for packed in await state.redis.hmget(state.keys.counts, sources)]


def counts_in(packed: bytes | None) -> dict[str, int]:
    """Return the counts of a source, as Redis has them."""
    return {} if packed is None else dict(msgpack.unpackb(packed))


async def read_dead_letter_counts(state: State, sources: Sequence[str]) -> list[int]:
    """Return how many dead letters each of `sources` has at present."""
    return [int(value or 0) for value in await state.redis.hmget(state.keys.dead_sources, sources)]


async def read_spent_budgets(state: State, sources: Sequence[str]) -> list[tuple[int, int]]:
    """Return how many links each of `sources` has admitted within its budget, and how many of them are poor."""
    reply = await state.redis.hmget(state.keys.ledger, sources)
    lines = ((line or b"0 0").split() for line in reply)
    return [(int(admitted), int(poor)) for admitted, poor, *_ in lines]


async def read_statuses(state: State, sources: Sequence[str]) -> list[dict[str, int]]:
    """Return how often each status is among the last 50 of each of `sources`, the most frequent first."""
    async with state.redis.pipeline(transaction=False) as pipe:
        for source in sources:
            pipe.lrange(state.keys.statuses_of + source, 0, 49)
        found = map(Counter[bytes], await pipe.execute())
    return [
        {status.decode(errors="replace")[:20]: count for status, count in statuses.most_common()}
        for statuses in found
    ]


async def read_fetches(state: State, sources: Sequence[str]) -> list[list[int]]:
    """Return how long fetches of each of `sources` took lately, by bucket of `LATENCY_BOUNDS`; [] without any.

    Of the last few minutes: they are counted anew every five (see the Lua module `windows`).
    """
    async with state.redis.pipeline(transaction=False) as pipe:
        for source in sources:
            pipe.get(state.keys.window_of + source)
        return [fetches_in(packed) for packed in await pipe.execute()]


async def read_all_fetches(state: State) -> dict[str, list[int]]:
    """Return the same of each source that has a fetch among its last ones."""
    found: dict[str, list[int]] = {}
    cursor, more = 0, True
    while more:
        cursor, page = await state.redis.zscan(state.keys.active, cursor, count=_PAGE)
        names = [name.decode(errors="replace") for name, _ in page]
        read = zip(names, await read_fetches(state, names), strict=True)
        found |= {name: fetches for name, fetches in read if fetches}
        more = cursor != 0
    return found


def fetches_in(window: bytes | None) -> list[int]:
    """Return the histogram in what the Lua module `windows` has packed; [] without any fetch."""
    counters: bytes = b"" if window is None else msgpack.unpackb(window, raw=True)[b"fetches"]
    counts = [int.from_bytes(counters[at : at + 2]) for at in range(0, len(counters), 2)]
    return counts + [0] * (len(LATENCY_BOUNDS) + 1 - len(counts)) if any(counts) else []
