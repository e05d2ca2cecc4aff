"""The seed list, and the processing lists: seeds that wait, and seeds that a worker has taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crawlproject.state.client import BlockingState, State

_ENOUGH_WAITING = 100_000  # seeds in the list; more are not put there
_WAIT_S = 1


# For those who feed


def push(state: BlockingState, seeds: Sequence[str | bytes]) -> None:
    """Put seeds behind those that wait, all or none."""
    state.redis.lpush(state.keys.seeds, *seeds)


def is_long(state: BlockingState) -> bool:
    """Tell whether so many seeds wait that no more should be put into the list."""
    waiting: Any = state.redis.llen(state.keys.seeds)
    return bool(waiting > _ENOUGH_WAITING)


def has_room(state: BlockingState) -> bool:
    """Tell whether the list takes more seeds, and the frontier behind it, too."""
    outstanding: Any = state.redis.get(state.keys.outstanding)
    return int(outstanding or 0) < state.config.high_water and not is_long(state)


# For the worker that reads


async def await_seed(state: State) -> bool:
    """Wait a second at most for a seed, move it to this worker's processing list, and tell whether one came.

    The one blocking command that a worker sends: it hears of a seed at once.
    """
    processing = state.keys.processing_of + state.worker_id
    return await state.redis.blmove(state.keys.seeds, processing, _WAIT_S, "RIGHT", "LEFT") is not None


async def has_taken(state: State) -> bool:
    """Tell whether this worker's processing list holds seeds."""
    taken: Any = await state.redis.llen(state.keys.processing_of + state.worker_id)
    return bool(taken)


async def frontier_is_full(state: State) -> bool:
    """Tell whether the frontier is at CRAWL_FRONTIER_HIGH_WATER."""
    return int(await state.redis.get(state.keys.outstanding) or 0) >= state.config.high_water
