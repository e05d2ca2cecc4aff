"""Blocking work in daemon threads: those of an executor keep a process from ending until they have done all."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def in_thread(name: str, work: Callable[[], T]) -> asyncio.Future[T]:
    """Have `work` done in a thread of its own; the future has what it returns or raises, and nobody need await it.

    OSError when there can be no other thread.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    done.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved, for asyncio's log

    def finish(result: T | None, error: Exception | None) -> None:
        if done.done():
            return  # cancelled
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failed = None, None
        try:
            result = work()
        except Exception as error:  # it may raise what it likes
            failed = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(finish, result, failed)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:
        finish(None, OSError(errno.EAGAIN, str(error)))
    return done
