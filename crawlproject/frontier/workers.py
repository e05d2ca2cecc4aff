"""The workers that Redis knows: who is alive, and what each holds."""

from __future__ import annotations

from typing import Any

from crawlproject.state.client import State


async def alive_workers(state: State) -> list[str]:
    """Return the workers that have sent a heartbeat to a shard within CRAWL_HEARTBEAT_TIMEOUT."""
    return await state.scripts.alive(timeout=state.config.heartbeat_timeout)


async def stored_leases(state: State) -> dict[str, bytes]:
    """Return the leases that Redis counts as this worker's, by id: the stored request of each.

    An id that is not UTF-8 was written by others; it keeps its bytes as surrogate escapes.
    """
    stored: Any = await state.redis.hgetall(state.keys.leases_of + state.worker_id)
    return {lease.decode(errors="surrogateescape"): entry for lease, entry in stored.items()}
