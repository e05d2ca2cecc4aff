"""Background work that a component repeats as long as it lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from crawlproject.state.client import REDIS_TROUBLE, State

logger = logging.getLogger(__name__)

_AFTER_TROUBLE_S = 1.0


class Loops:
    """Tasks that repeat a step until they are stopped; when Redis fails, they wait and go on."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, *steps: Callable[[], Awaitable[None]]) -> None:
        """Repeat each of `steps` in a task of its own. A step contains its own waiting."""
        self._tasks += [asyncio.create_task(self._repeat(step)) for step in steps]

    async def stop(self, grace: float = 0.0) -> None:
        """End all tasks: give their current steps `grace` seconds, then cancel them."""
        self._stopping = True
        if grace and self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        # More than once: on Python 3.11 the client can swallow a cancellation (asyncio.timeout in redis-py).
        while pending := [task for task in self._tasks if not task.done()]:
            for task in pending:
                task.cancel()
            await asyncio.wait(pending, timeout=0.1)

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        while not self._stopping:
            try:
                await step()
            except REDIS_TROUBLE as error:
                self.state.failed(error)
                await asyncio.sleep(_AFTER_TROUBLE_S)
            except Exception:
                logger.exception("Bug in %s; going on", _name_of(step))
                await asyncio.sleep(_AFTER_TROUBLE_S)


def _name_of(step: object) -> str:
    while isinstance(step, partial):
        step = step.func
    return getattr(step, "__qualname__", str(step))
