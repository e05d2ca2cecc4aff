"""A process that spills and refills until it is killed: `REDIS_URL FOLDER MOMENT NUMBER SOURCE [PID]`.

MOMENT is one of MOMENTS, at which it kills the process PID (a Redis) and then itself, the NUMBER-th time that it
comes there. It asks for an extent of SOURCE again and again, as if the source's window were always half used.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crawlproject import config
from crawlproject.frontier.overflow import Overflow
from crawlproject.state.client import State
from crawlproject.storage.packs import FolderPacks

_ROUNDS = 20
MOMENTS = (
    "before write",
    "half written",
    "before rename",
    "after write",
    "during spill_commit",
    "after spill_commit",
    "before read",
    "before refill_commit",
    "during refill_commit",
    "after refill_commit",
)


class Killer:
    """Ends this process, and another one before it, at a moment that is reached for the `number`-th time."""

    def __init__(self, number: int, others: list[int]) -> None:
        self.left = number
        self.others = others

    def reached(self) -> bool:
        self.left -= 1
        return self.left <= 0

    def kill(self) -> None:
        for pid in (*self.others, os.getpid()):
            os.kill(pid, signal.SIGKILL)

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def killing(*args: Any, **named: Any) -> Any:
            if self.reached():
                self.kill()
            return call(*args, **named)

        return killing

    def after(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def killing(*args: Any, **named: Any) -> Any:
            result = call(*args, **named)
            if self.reached():
                self.kill()
            return result

        return killing

    def half_way(self, write: Callable[..., int]) -> Callable[..., int]:
        def killing(file: int, data: bytes) -> int:
            if len(data) > 100 and self.reached():  # a pack
                write(file, data[: len(data) // 2])
                self.kill()
            return write(file, data)

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
        async def killing(*args: Any, **named: Any) -> Any:
            result = await script(*args, **named)
            if self.reached():
                self.kill()
            return result

        return killing

    def arm(self, moment: str, scripts: Any, packs: FolderPacks) -> None:
        when, _, what = moment.partition(" ")
        if what == "write":
            packs.write = getattr(self, when)(packs.write)  # type: ignore[method-assign]
        elif what == "read":
            packs.read = self.before(packs.read)  # type: ignore[method-assign]
        elif what == "written":
            os.write = self.half_way(os.write)
        elif what == "rename":
            Path.replace = self.before(Path.replace)  # type: ignore[method-assign]
        else:
            kind = {"before": self.before, "during": self.during, "after": self.when_done}[when]
            setattr(scripts, what, kind(getattr(scripts, what)))


async def main(address: str, folder: str, moment: str, number: str, source: str, *others: str) -> None:
    """Spill all there is, and refill once, in turn."""
    state = State(config.load({"REDIS_URL": address, "CRAWL_OVERFLOW_STORE": folder}), "images")
    await state.open()
    packs = FolderPacks(Path(folder))
    overflow = Overflow(state, packs)
    await overflow.spill()  # the folder has its mark
    Killer(int(number), [int(pid) for pid in others]).arm(moment, state.scripts, packs)
    for _ in range(_ROUNDS):
        await overflow.spill()
        await state.redis.sadd(state.keys.refill_ready, source)
        await overflow.refill()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
