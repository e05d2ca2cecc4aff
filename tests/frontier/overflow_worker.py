"""A process that spills and refills until it is killed: `REDIS_URL FOLDER MOMENT NUMBER SOURCE`.

MOMENT is one of MOMENTS, at which it kills itself, the NUMBER-th time that it
comes there. At first SOURCE's window is full; then it is wide, and an extent is fetched again and again.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from crawlproject import config
from crawlproject.frontier.overflow import Overflow
from crawlproject.state.client import State
from crawlproject.storage.packs import FolderPacks
from tests.killer import Killer

_ROUNDS = 20
MOMENTS = (
    "before write",
    "half written",
    "before rename",
    "after write",
    "during spill_commit",
    "after spill_commit",
    "before read",
    "before take_extent",
    "during take_extent",
    "after take_extent",
)


def arm(killer: Killer, moment: str, scripts: Any, packs: FolderPacks) -> None:
    """Have `killer` strike at that moment."""
    when, _, what = moment.partition(" ")
    if what == "write":
        packs.write = getattr(killer, when)(packs.write)  # type: ignore[method-assign]
    elif what == "read":
        packs.read = killer.before(packs.read)  # type: ignore[method-assign]
    elif what == "written":
        os.write = killer.half_way(os.write)
    elif what == "rename":
        Path.replace = killer.before(Path.replace)  # type: ignore[method-assign]
    else:
        kind = {"before": killer.before, "during": killer.during, "after": killer.when_done}[when]
        setattr(scripts, what, kind(getattr(scripts, what)))


async def main(address: str, folder: str, moment: str, number: str, source: str) -> None:
    """Spill all there is, and refill."""
    state = State(config.load({"REDIS_URL": address, "CRAWL_OVERFLOW_STORE": folder}), "images")
    await state.open()
    packs = FolderPacks(Path(folder))
    overflow = Overflow(state, packs)
    await state.scripts.overflow_take(most=0, folder=await overflow._open())  # the folder has its mark
    redis: Any = state.redis
    arm(Killer(int(number), []), moment, state.scripts, packs)
    for round_ in range(_ROUNDS):
        if round_ == _ROUNDS // 2:  # all is spilled
            await redis.hset(state.keys.rates, source, "1")
        await redis.zadd(state.keys.overflow_due, {source: 0})
        await overflow.step()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
