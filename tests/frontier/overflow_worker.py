"""A process that spills and refills until it is killed: `REDIS_URL FOLDER MOMENT NUMBER SOURCE [PID]`.

MOMENT is one of MOMENTS, at which it kills the process PID (a Redis) and then itself, the NUMBER-th time that it
comes there. It asks for an extent of SOURCE again and again, as if the source's window were always half used.
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
    "before refill_commit",
    "during refill_commit",
    "after refill_commit",
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


async def main(address: str, folder: str, moment: str, number: str, source: str, *others: str) -> None:
    """Spill all there is, and refill once, in turn."""
    state = State(config.load({"REDIS_URL": address, "CRAWL_OVERFLOW_STORE": folder}), "images")
    await state.open()
    packs = FolderPacks(Path(folder))
    overflow = Overflow(state, packs)
    await overflow.spill()  # the folder has its mark
    arm(Killer(int(number), [int(pid) for pid in others]), moment, state.scripts, packs)
    for _ in range(_ROUNDS):
        await overflow.spill()
        await state.redis.sadd(state.keys.refill_ready, source)
        await overflow.refill()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
