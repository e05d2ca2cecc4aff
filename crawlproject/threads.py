"""Background work: how tasks end, and blocking work in daemon threads.

An executor's threads would keep the process alive until they are done.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_idle: list[SimpleQueue[Callable[[], None]]] = []  # of threads that wait for work


def in_thread(name: str, work: Callable[[], T]) -> asyncio.Future[T]:
    """Run `work` in a thread; the future gets what it returns or raises, and need not be awaited.

    Idle threads are reused; a new thread starts when there is none. OSError when no thread can be started.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: Exception | None) -> None:
        if done.done():
            return  # cancelled
        if error is not None:
            done.set_exception(error)
            done.exception()  # retrieved, for asyncio's log
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failed = None, None
        try:
            result = work()
        except Exception as error:  # whatever it raises goes into the future
            failed = error
        with suppress(RuntimeError):  # the loop is closed: nothing awaits the result
            loop.call_soon_threadsafe(finish, result, failed)

    try:
        thread = _idle.pop() if _idle else _start(name)
        thread.put(run)
    except RuntimeError as error:
        finish(None, OSError(errno.EAGAIN, str(error)))
    return done


def _start(name: str) -> SimpleQueue[Callable[[], None]]:
    work: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def serve() -> None:
        while True:
            work.get()()
            _idle.append(work)

    threading.Thread(target=serve, name=name, daemon=True).start()
    return work


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks, and wait until they are done. More than once: on Python 3.11 redis-py may swallow that."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=0.1)
