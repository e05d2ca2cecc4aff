"""A process that spills and refills until it is killed: `REDIS_URL FOLDER MOMENT NUMBER SOURCE`.

MOMENT is one of MOMENTS, at which it kills itself, the NUMBER-th time that it
comes there. At first SOURCE's window is full; then it is wide, and an extent is fetched again and again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from inspect import isawaitable
from pathlib import Path
from typing import Any

from crawlproject import config
from crawlproject.contrib.overflow.packs import FolderPacks
from crawlproject.contrib.overflow.spilling import Overflow
from crawlproject.state.client import State

_ROUNDS = 20
MOMENTS = ("half written", "after write", "after spill_commit", "before take_extent", "after take_extent")


class Killer:
    """Ends this process when its moment has come for the `number`-th time."""

    def __init__(self, number: int) -> None:
        self.left = number

    def reach(self) -> None:
        """Count one more time."""
        self.left -= 1
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def at(self, when: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call`, which may also be a coroutine function, with the moment before or after it."""

        async def finished(result: Any) -> Any:
            result = await result  # nobody knows the reply yet
            self.reach()
            return result

        def killing(*args: Any, **named: Any) -> Any:
            if when == "before":
                self.reach()
                return call(*args, **named)
            result = call(*args, **named)
            if isawaitable(result):
                return finished(result)
            self.reach()
            return result

        return killing

    def half_way(self, write: Callable[..., int]) -> Callable[..., int]:
        """Return `os.write` with the moment in the middle of what is longer than a line."""

        def killing(file: int, data: bytes) -> int:
            if len(data) <= 100:
                return write(file, data)
            written = write(file, data[: len(data) // 2])
            self.reach()
            return written + write(file, data[written:])

        return killing


def arm(killer: Killer, moment: str, scripts: Any, packs: FolderPacks) -> None:
    """Have `killer` strike at that moment."""
    when, _, what = moment.partition(" ")
    if what == "written":
        os.write = killer.half_way(os.write)
    else:
        of = packs if what == "write" else scripts
        setattr(of, what, killer.at(when, getattr(of, what)))


async def main(address: str, folder: str, moment: str, number: str, source: str) -> None:
    """Spill all there is, and refill."""
    state = State(config.load({"REDIS_URL": address}), "images")
    await state.open()
    packs = FolderPacks(Path(folder))
    overflow = Overflow(state, packs)
    await state.scripts.overflow_take(most=0, folder=await overflow._open())  # the folder has its mark
    redis: Any = state.redis
    arm(Killer(int(number)), moment, state.scripts, packs)
    for round_ in range(_ROUNDS):
        if round_ == _ROUNDS // 2:  # all is spilled
            await redis.hset(state.keys.rates, source, "1")
        await redis.zadd(state.keys.overflow_due, {source: 0})
        await overflow.step()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
