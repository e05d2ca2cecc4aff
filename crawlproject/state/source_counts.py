"""What is counted and noted of each source. A value that we did not write counts as none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from crawlproject.state.client import State
from crawlproject.state.numbers import whole_number


async def read_counts(state: State, sources: Sequence[str], counts: Sequence[str]) -> dict[str, list[int]]:
    """Return each of `counts` (see `Keys.counts_of`) of each of `sources`, in their order."""
    return await _read(state, sources, {count: state.keys.counts_of + count for count in counts})


async def read_dead_letter_counts(state: State, sources: Sequence[str]) -> list[int]:
    """Return how many dead letters each of `sources` has at present."""
    return (await _read(state, sources, {"dead": state.keys.dead_sources}))["dead"]


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


async def _read(state: State, sources: Sequence[str], hashes: dict[str, str]) -> dict[str, list[int]]:
    async with state.redis.pipeline(transaction=False) as pipe:
        for key in hashes.values():
            pipe.hmget(key, sources)
        replies: list[Any] = await pipe.execute(raise_on_error=False)
    return {name: _numbers(reply, len(sources)) for name, reply in zip(hashes, replies, strict=True)}


def _numbers(reply: Any, count: int) -> list[int]:
    values = reply if isinstance(reply, list) else [None] * count
    return [whole_number(value) or 0 for value in values]
