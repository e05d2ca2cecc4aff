"""The seed list, as those see it who feed it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

from crawlproject.frontier.contents import read_counters, room
from crawlproject.models import PRIORITIES
from crawlproject.state.client import State
from crawlproject.state.keys import Keys

_ENOUGH_WAITING = 100_000  # seeds in the list; more are not put there
_SHARES = 2  # at most this many sources can have that part of the overflow


def users_seeds(state: State) -> Keys | None:
    """Return the keys beside the list that users push to, if no shard reads that; else None.

    They are in its slot, on a Redis Cluster.
    """
    keys = state.keys
    return None if keys.users_seeds == keys.seeds else Keys(f"{{{keys.users_seeds}}}", keys.spider, keys.crawl)


async def push(state: State, seeds: Sequence[str | bytes]) -> None:
    """Put seeds behind those that wait, all or none: with several shards, where users push them."""
    async with state.client_for(state.keys.users_seeds) as users:
        await cast("Any", users).lpush(state.keys.users_seeds, *seeds)


async def is_long(state: State) -> bool:
    """Tell whether too many seeds wait to take more: in all lists, with what is on its way between them."""
    waiting = 0
    for shard in state.shards:
        length: Any = await shard.redis.llen(shard.keys.seeds)
        waiting += length
    if (place := users_seeds(state)) is not None:
        async with state.client_for(place.users_seeds) as users:
            for name in (place.users_seeds, *(f"{place.foreign_of}{number}" for number in range(state.count))):
                length = await cast("Any", users).llen(name)
                waiting += length
    return waiting > _ENOUGH_WAITING


async def has_room(state: State) -> bool:
    """Tell whether the list takes more seeds, and the frontier behind it, too: that of some shard."""
    return any([all(await room(shard)) for shard in state.shards]) and not await is_long(state)


async def is_overflow_half_full(state: State) -> bool:
    """Tell whether half of CRAWL_OVERFLOW_MAXLEN seeds wait beyond their sources' windows.

    With several shards, half of one's part of that, in one of them.
    """
    for shard in state.shards:
        if (await read_counters(shard)).in_tails >= _half(state):
            return True
    return False


async def sources_with_enough(state: State, seeds: Collection[tuple[str | None, str]]) -> list[str]:
    """Return the sources that `seeds` belong to, if each has half of the overflow; else an empty list.

    Of each seed: the source that it names, and the registrable domain of its URL.
    """
    sources = sorted({one.source for one in await state.scripts.attribute_all(list(seeds))})
    if len(sources) > _SHARES:
        return []
    for source in sources:
        shard = state.shard_for(source)
        waiting = 0
        for priority in range(PRIORITIES):
            length: Any = await shard.redis.llen(f"{shard.keys.overflow_of}{priority}:{source}")
            waiting += length
        if waiting < _half(state):
            return []
    return sources


def _half(state: State) -> int:
    return max(state.bounds.overflow_maxlen // _SHARES, 1)
