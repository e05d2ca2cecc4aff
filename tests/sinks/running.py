"""Runs what is asynchronous for tests that fork, or look from outside; has something happen before a line."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any, TypeVar

import redis

from crawlproject import config, threads
from crawlproject.state.client import State
from crawlproject.state.keys import Keys
from tests.streams.records import records, write

T = TypeVar("T")

KEYS = Keys("crawl", "images")


@asynccontextmanager
async def state_of(client: redis.Redis, **settings: Any) -> AsyncIterator[State]:
    """Open a state of the server of a client."""
    where = client.connection_pool.connection_kwargs
    url = f"unix://{where['path']}" if "path" in where else f"redis://{where['host']}:{where['port']}"
    state = State(config.load({"REDIS_URL": url, **settings}), "images")
    await state.open()
    try:
        yield state
    finally:
        await state.close()


def run(client: redis.Redis, act: Callable[[State], Awaitable[T]], **settings: Any) -> T:
    """Return what `act` returns for a state of its own."""

    async def with_state() -> T:
        async with state_of(client, **settings) as state:
            return await act(state)

    return asyncio.run(with_state())


def before_line(files: tuple[str, ...], number: int, act: Callable[[], object]) -> Callable[..., Any]:
    """Return a trace function (`sys.settrace`): when `number` lines of `files` have run, it calls `act`, once."""
    left = number

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(files):
            return None
        if event == "line":
            left -= 1
            if left == -1:
                act()
        return trace

    return trace


def die() -> None:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def trace(function: Callable[..., Any] | None) -> None:
    """Trace this thread, and those that begin."""
    threading.settrace(function)
    sys.settrace(function)


def let_leases_end(client: redis.Redis) -> None:
    """Have it be some seconds later, for the leases of readers."""
    for name in records(client, KEYS):
        write(client, name, KEYS, until=None)


def has_died(redis_url: str, act: Callable[[redis.Redis], object]) -> bool:
    """Fork, and have the child act with a client of its own; return whether it died before its end."""
    child = os.fork()
    if child:
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert ended in {0, -signal.SIGKILL}, ended  # otherwise it says what it met
        return ended != 0
    threads._idle.clear()  # a fork has none of its parent's threads
    try:
        with redis.Redis.from_url(redis_url) as own:
            act(own)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def ends_before(
    files: tuple[str, ...], line: int, act: Callable[[redis.Redis], object]
) -> Callable[[redis.Redis], None]:
    """Return `act` for a process that is killed before so many lines of `files` have run."""

    def traced(own: redis.Redis) -> None:
        trace(before_line(files, line, die))
        act(own)

    return traced
