"""The seed list, and the processing lists: seeds that wait, and seeds that a worker has taken."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, cast

from crawlproject.frontier.contents import read_counters
from crawlproject.models import PRIORITIES
from crawlproject.state.client import State
from crawlproject.state.keys import Keys

FORWARDED = b"\1"  # begins a seed that another shard has sent: see the Lua module `shards`
TOO_LONG = b"\0"  # begins, before its length, what stands in place of a line that was not read
_ENOUGH_WAITING = 100_000  # seeds in the list; more are not put there
_SHARES = 2  # at most this many sources can have that part of the overflow
_WAIT_S = 1


class Room(NamedTuple):
    """How many requests the frontier takes, and how many seeds may wait beyond their sources' windows."""

    frontier: int
    overflow: int


# For those who feed


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


# For the worker that reads


async def await_seed(redis: Any, seeds: str) -> bool:
    """Wait a second at most for a seed in a list, and tell whether there is one. Nothing is moved.

    The one blocking command that a worker sends: it hears of a seed at once. The command takes the last seed and
    puts it back to its place: carried out late, when the worker has been given up, it does no harm. Where seeds
    wait already, none is sent here.
    """
    return bool(await redis.llen(seeds)) or await redis.blmove(seeds, seeds, _WAIT_S, "RIGHT", "RIGHT") is not None


async def has_taken(state: State) -> bool:
    """Tell whether this worker's processing list holds seeds."""
    taken: Any = await state.redis.llen(state.keys.processing_of + state.worker_id)
    return bool(taken)


async def room(state: State) -> Room:
    """Return how many seeds the frontier and the overflows have room for."""
    counted, config = await read_counters(state), state.config.of_shard
    return Room(
        max(config.high_water - counted.outstanding, 0),
        max(config.overflow_maxlen - counted.in_tails, 0),
    )
