"""The seed list, and the processing lists: seeds that wait, and seeds that a worker has taken."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from typing import Any, NamedTuple, cast

from crawlproject.models import PRIORITIES
from crawlproject.sources.rates import MINIMUM_RATE
from crawlproject.state import functions
from crawlproject.state.client import BlockingState, State
from crawlproject.state.keys import Keys
from crawlproject.state.numbers import whole_number
from crawlproject.state.scripts.sources import Attribution, attribute_arguments

FORWARDED = b"\1"  # begins a seed that another shard has sent: see the Lua module `shards`
TOO_LONG = b"\0"  # begins, before its length, what stands in place of a line that was not read
_ENOUGH_WAITING = 100_000  # seeds in the list; more are not put there
_SHARES = 2  # at most this many sources can have that part of the overflow
_WAIT_S = 1


class Room(NamedTuple):
    """How many requests the frontier takes, and how many seeds may wait beyond their sources' shares of it."""

    frontier: int
    overflow: int


# For those who feed


def users_seeds(state: State | BlockingState) -> Keys | None:
    """Return the keys beside the list that users push to, if no shard reads that; else None.

    They are in its slot, on a Redis Cluster.
    """
    keys = state.keys
    return None if keys.users_seeds == keys.seeds else Keys(f"{{{keys.users_seeds}}}", keys.spider, keys.crawl)


def push(state: BlockingState, seeds: Sequence[str | bytes]) -> None:
    """Put seeds behind those that wait, all or none: with several shards, where users push them."""
    if users_seeds(state) is None:
        state.redis.lpush(state.keys.seeds, *seeds)
        return
    with closing(state.client_for(state.keys.users_seeds)) as users:
        users.lpush(state.keys.users_seeds, *seeds)


def is_long(state: BlockingState) -> bool:
    """Tell whether too many seeds wait to take more: in all lists, with what is on its way between them."""
    waiting = 0
    for shard in state.shards:
        length: Any = shard.redis.llen(shard.keys.seeds)
        waiting += length
    if (place := users_seeds(state)) is not None:
        lists = [place.users_seeds, *(f"{place.foreign_of}{number}" for number in range(state.count))]
        with closing(state.client_for(place.users_seeds)) as users:
            for name in lists:
                length = users.llen(name)
                waiting += length
    return waiting > _ENOUGH_WAITING


def has_room(state: BlockingState) -> bool:
    """Tell whether the list takes more seeds, and the frontier behind it, too: that of some shard."""
    rooms = (_room(shard, shard.redis.mget(*_counters(shard))) for shard in state.shards)
    return any(all(room) for room in rooms) and not is_long(state)


def is_overflow_half_full(state: BlockingState) -> bool:
    """Tell whether half of CRAWL_OVERFLOW_MAXLEN seeds wait beyond their sources' shares of the frontier.

    With several shards, half of one's part of that, in one of them.
    """
    return any(_in_tails(*shard.redis.mget(*_counters(shard))[1:]) >= _half(state) for shard in state.shards)


def sources_with_enough(state: BlockingState, seeds: Collection[tuple[str | None, str]]) -> list[str]:
    """Return the sources that `seeds` belong to, if each has half of the overflow; else an empty list.

    Of each seed: the source that it names, and the registrable domain of its URL.
    """
    redis, keys = state.redis, state.keys
    arguments = attribute_arguments(list(seeds)) | {"min_rate": MINIMUM_RATE}
    reply: Any = functions.call_blocking(redis, functions.command("attribute", keys, arguments))
    sources = sorted({Attribution.of(row).source for row in reply})
    if len(sources) > _SHARES:
        return []
    for source in sources:
        shard = state.shard_for(source)
        lengths = (
            shard.redis.llen(f"{shard.keys.overflow_of}{priority}:{source}") for priority in range(PRIORITIES)
        )
        if sum(cast("Iterable[int]", lengths)) < _half(state):
            return []
    return sources


def _half(state: BlockingState) -> int:
    return max(state.config.of_shard.overflow_maxlen // _SHARES, 1)


# For the worker that reads


async def await_seed(state: State) -> bool:
    """Wait a second at most for a seed, and tell whether there is one. Nothing is moved.

    The one blocking command that a worker sends: it hears of a seed at once. The command takes the last seed and
    puts it back to its place: carried out late, when the worker has been given up, it does no harm. Where seeds
    wait already, none is sent here.
    """
    seeds = state.keys.seeds
    waiting: Any = await state.redis.llen(seeds)
    return bool(waiting) or await state.redis.blmove(seeds, seeds, _WAIT_S, "RIGHT", "RIGHT") is not None


async def has_taken(state: State) -> bool:
    """Tell whether this worker's processing list holds seeds."""
    taken: Any = await state.redis.llen(state.keys.processing_of + state.worker_id)
    return bool(taken)


async def room(state: State) -> Room:
    """Return how many seeds the frontier and the overflows have room for."""
    return _room(state, await state.redis.mget(*_counters(state)))


def _counters(state: State | BlockingState) -> tuple[str, str, str]:
    return state.keys.outstanding, state.keys.overflow, state.keys.spilled


def _in_tails(overflow: Any, spilled: Any) -> int:
    """Return how many requests beyond the shares are in Redis: those in the store need no room there."""
    return (whole_number(overflow) or 0) - (whole_number(spilled) or 0)


def _room(state: State | BlockingState, counters: Any) -> Room:
    outstanding, overflow, spilled = counters
    config = state.config.of_shard
    return Room(
        max(config.high_water - (whole_number(outstanding) or 0), 0),
        max(config.overflow_maxlen - _in_tails(overflow, spilled), 0),
    )
