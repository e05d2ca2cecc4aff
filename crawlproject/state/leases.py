"""How many requests of each source workers hold, and how many wait to be leased alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

from crawlproject.state.client import State


async def count_leases(state: State) -> Counter[str]:
    """Count the leases of all workers by the source that pays."""
    redis: Any = state.redis
    async with redis.pipeline(transaction=False) as pipe:
        for worker in await redis.zrange(state.keys.workers, 0, -1):
            pipe.hkeys(state.keys.leases_of.encode() + worker)
        replies = await pipe.execute(raise_on_error=False)
    leases: Counter[str] = Counter()
    for ids in replies:
        if isinstance(ids, list):  # else a key that holds something else
            leases.update(lease.decode(errors="replace").partition(":")[2] for lease in ids)
    return leases


async def count_quarantined(state: State) -> Counter[str]:
    """Count, by source, the requests before their last delivery: they wait in a list of their own."""
    redis: Any = state.redis
    waiting = await redis.lrange(state.keys.quarantine, 0, -1)
    return Counter(entry.partition(b"\n")[0].decode(errors="replace") for entry in waiting)
