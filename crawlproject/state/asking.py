"""One question to several, none of which waits for another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import redis

from crawlproject.state.health import plain

S = TypeVar("S")
T = TypeVar("T")

# What a call to Redis may raise when Redis is at fault, not the caller.
REDIS_TROUBLE = (redis.RedisError, OSError, TimeoutError)

WITHIN_S = 4.0  # that each has to answer


async def ask_each(
    asked: Iterable[S], call: Callable[[S], Awaitable[T]], *, within_s: float = WITHIN_S
) -> tuple[dict[S, T], dict[S, str]]:
    """Return what `call` returns for each, and of those that did not answer, what is wrong."""

    async def ask(one: S) -> T:
        return await call(one)

    tasks = {one: asyncio.create_task(ask(one)) for one in asked}
    if tasks:
        await asyncio.wait(tasks.values(), timeout=within_s)
    answers: dict[S, T] = {}
    away: dict[S, str] = {}
    for one, task in tasks.items():
        if not task.done():
            task.add_done_callback(_forget)
            task.cancel()
            away[one] = f"no answer within {within_s:g} s"
            continue
        try:
            answers[one] = task.result()
        except REDIS_TROUBLE as error:
            away[one] = plain(error)
    return answers, away


def _forget(task: asyncio.Task[T]) -> None:
    """Take note of how a task has ended, so that asyncio does not complain that nobody has."""
    if not task.cancelled():
        task.exception()
