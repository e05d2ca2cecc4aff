"""Kills this process at a named moment: before, in the middle of, or after a call."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any


class Killer:
    """Ends this process, and another one before it, at a moment that is reached for the `number`-th time."""

    def __init__(self, number: int, others: list[int]) -> None:
        self.left = number
        self.others = others

    def reached(self) -> bool:
        """Count one more time that the moment has come; tell whether it is the last."""
        self.left -= 1
        return self.left <= 0

    def kill(self) -> None:
        """End them all, this process last."""
        for pid in (*self.others, os.getpid()):
            os.kill(pid, signal.SIGKILL)

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call`, which may also be a coroutine function, with a kill before it."""

        def killing(*args: Any, **named: Any) -> Any:
            if self.reached():
                self.kill()
            return call(*args, **named)

        return killing

    def after(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call` with a kill after it."""

        def killing(*args: Any, **named: Any) -> Any:
            result = call(*args, **named)
            if self.reached():
                self.kill()
            return result

        return killing

    def half_way(self, write: Callable[..., int]) -> Callable[..., int]:
        """Return `os.write` or `os.pwrite` with a kill in the middle of what is longer than a line."""

        def killing(file: int, data: bytes, *where: int) -> int:
            if len(data) > 100 and self.reached():
                write(file, data[: len(data) // 2], *where)
                self.kill()
            return write(file, data, *where)

        return killing

    def during(self, script: Callable[..., Any]) -> Callable[..., Any]:
        """Kill while a script may have been sent, may run, or may be done."""

        async def killing(*args: Any, **named: Any) -> Any:
            call = asyncio.ensure_future(script(*args, **named))
            if self.reached():
                await asyncio.sleep(0.001)
                self.kill()
            return await call

        return killing

    def when_done(self, script: Callable[..., Any]) -> Callable[..., Any]:
        """Kill when a script is done, before anybody knows its reply."""

        async def killing(*args: Any, **named: Any) -> Any:
            result = await script(*args, **named)
            if self.reached():
                self.kill()
            return result

        return killing
