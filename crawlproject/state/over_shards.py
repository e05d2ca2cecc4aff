"""One question to all shards of a crawl, or to those of some sources: an unavailable shard hides no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import redis

from crawlproject.state.health import plain

if TYPE_CHECKING:
    from crawlproject.state.client import State

T = TypeVar("T")

# What a call to Redis may raise when Redis is at fault, not the caller.
REDIS_TROUBLE = (redis.RedisError, OSError, TimeoutError)

WITHIN_S = 4.0  # that each has to answer


async def ask_shards(
    asked: Iterable[State], call: Callable[[State], Awaitable[T]], *, within_s: float = WITHIN_S
) -> tuple[dict[State, T], dict[State, str]]:
    """Return what `call` returns for each shard, and of those that did not answer, what is wrong.

    Raises:
        REDIS_TROUBLE: of the only shard of a crawl.

    """
    shards = list(asked)
    if len(shards) == 1 and shards[0].count == 1:
        return {shards[0]: await call(shards[0])}, {}
    answers: dict[State, T] = {}
    away: dict[State, str] = {}

    async def ask(one: State) -> None:
        try:
            async with asyncio.timeout(within_s) as limit:
                answers[one] = await call(one)
        except REDIS_TROUBLE as error:
            away[one] = f"no answer within {within_s:g} s" if limit.expired() else plain(error)

    await asyncio.gather(*map(ask, shards))
    return {one: answers[one] for one in shards if one in answers}, away


def shown(state: State) -> str:
    """Return the name of a shard, for people."""
    return f"shard {state.number} of {state.count}"


def not_answering(state: State, fault: str, what: str = "") -> redis.ConnectionError:
    """Return the error of a shard that does not answer; `what` is to be said of that."""
    return redis.ConnectionError(f"{shown(state)} does not answer ({fault}){what}")


async def ask_for(
    state: State,
    sources: Iterable[str],
    call: Callable[[State, list[str]], Awaitable[T]],
    away: dict[State, str] | None = None,
) -> dict[State, T]:
    """Return what `call` returns for the shards of some sources, each with its sources, both in order.

    What is wrong with those that do not answer is put into `away`.

    Raises:
        redis.ConnectionError: a shard does not answer, and `away` is None; the others have been asked.
        REDIS_TROUBLE: of the only shard of a crawl.

    """
    groups: dict[State, list[str]] = {}
    for source in sources:
        groups.setdefault(state.shard_for(source), []).append(source)
    asked = [shard for shard in state.shards if shard in groups]
    answers, faults = await ask_shards(asked, lambda shard: call(shard, groups[shard]), within_s=30.0)
    if away is not None:
        away |= faults
        return answers
    for shard, fault in faults.items():
        names = ", ".join(groups[shard][:5]) + (", ..." if len(groups[shard]) > 5 else "")
        raise not_answering(shard, fault, f", and has {names}: run this again later")
    return answers
