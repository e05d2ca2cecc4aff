"""What requests workers hold of each source."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from crawlproject.state.client import State


async def count_leases(state: State) -> Counter[str]:
    """Count the leases of all workers by the source that pays."""
    redis: Any = state.redis
    async with redis.pipeline(transaction=False) as pipe:
        for worker in await redis.zrange(state.keys.workers, 0, -1):
            pipe.hkeys(state.keys.leases_of.encode() + worker)
        return Counter(_source(lease) for ids in await pipe.execute() for lease in ids)


async def read_leases(state: State) -> AsyncIterator[tuple[str, bytes]]:
    """Yield the leases of all workers, a worker at a time: the source that pays, and the stored request."""
    redis: Any = state.redis
    for worker in await redis.zrange(state.keys.workers, 0, -1):
        leases = await redis.hgetall(state.keys.leases_of.encode() + worker)
        for lease, entry in leases.items():
            yield _source(lease), entry


def _source(lease: bytes) -> str:
    return lease.decode(errors="replace").partition(":")[2]
