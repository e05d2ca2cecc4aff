"""What is counted and noted of each source. A value that we did not write counts as none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgpack
from redis.exceptions import ResponseError

from crawlproject.state.client import State
from crawlproject.state.numbers import whole_number


async def read_counts(state: State, sources: Sequence[str], counts: Sequence[str]) -> dict[str, list[int]]:
    """Return each of `counts` (see `Keys.counts_of`) of each of `sources`, in their order."""
    # In one step: a source may be put to rest meanwhile.
    async with state.redis.pipeline(transaction=True) as pipe:
        pipe.hmget(state.keys.counts_at_rest, sources)
        for count in counts:
            pipe.hmget(state.keys.counts_of + count, sources)
        at_rest, *replies = await pipe.execute(raise_on_error=False)
    packed = [counts_in(value) for value in _values(at_rest, len(sources))]
    return {
        name: [
            (whole_number(value) or 0) + before.get(name, 0)
            for value, before in zip(_values(reply, len(sources)), packed, strict=True)
        ]
        for name, reply in zip(counts, replies, strict=True)
    }


def counts_in(packed: bytes | None) -> dict[str, int]:
    """Return the counts of a source from before it last rested; none where rest.lua has not written them."""
    if packed is None:
        return {}
    try:
        counts = msgpack.unpackb(packed)
    except (ValueError, msgpack.UnpackException):
        return {}
    if not isinstance(counts, dict):
        return {}
    return {name: number for name, number in counts.items() if isinstance(name, str) and isinstance(number, int)}


async def read_dead_letter_counts(state: State, sources: Sequence[str]) -> list[int]:
    """Return how many dead letters each of `sources` has at present."""
    redis: Any = state.redis
    try:
        reply = await redis.hmget(state.keys.dead_sources, sources)
    except ResponseError:
        reply = None
    return [whole_number(value) or 0 for value in _values(reply, len(sources))]


async def read_statuses(state: State, sources: Sequence[str]) -> list[dict[str, int]]:
    """Return how often each status is among the last 50 of each of `sources`, the most frequent first."""
    async with state.redis.pipeline(transaction=False) as pipe:
        for source in sources:
            pipe.lrange(state.keys.statuses_of + source, 0, 49)
        replies: list[Any] = await pipe.execute(raise_on_error=False)
    found = (Counter(reply if isinstance(reply, list) else []) for reply in replies)
    return [
        {status.decode(errors="replace")[:20]: count for status, count in statuses.most_common()}
        for statuses in found
    ]


def _values(reply: Any, count: int) -> list[Any]:
    return reply if isinstance(reply, list) else [None] * count
