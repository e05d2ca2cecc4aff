"""What requests workers hold of each source, and how many wait to be leased alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from redis.exceptions import ResponseError

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
            leases.update(map(_source, ids))
    return leases


async def read_leases(state: State) -> AsyncIterator[tuple[str, bytes]]:
    """Yield the leases of all workers, a worker at a time: the source that pays, and the stored request."""
    redis: Any = state.redis
    for worker in await redis.zrange(state.keys.workers, 0, -1):
        try:
            leases = await redis.hgetall(state.keys.leases_of.encode() + worker)
        except ResponseError:  # a key that holds something else
            continue
        for lease, entry in leases.items():
            yield _source(lease), entry


def _source(lease: bytes) -> str:
    return lease.decode(errors="replace").partition(":")[2]


async def count_quarantined(state: State) -> Counter[str]:
    """Count, by source, the requests before their last delivery: they wait in a list of their own, 500 at most."""
    redis: Any = state.redis
    waiting = await redis.lrange(state.keys.quarantine, 0, -1)
    return Counter(entry.partition(b"\n")[0].decode(errors="replace") for entry in waiting)
