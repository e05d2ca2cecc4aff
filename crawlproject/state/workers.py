"""The workers that Redis knows: who is alive, and what each holds."""

from __future__ import annotations

from typing import Any

from crawlproject.state import functions
from crawlproject.state.client import BlockingState, State
from crawlproject.state.clock import MICROS


def alive_workers(state: BlockingState) -> list[str]:
    """Return the workers that have sent a heartbeat to a shard within CRAWL_HEARTBEAT_TIMEOUT."""
    arguments = {"timeout": int(state.config.heartbeat_timeout * MICROS)}
    found: Any = functions.call_blocking(state.redis, functions.command("alive", state.keys, arguments))
    return [worker.decode(errors="replace") for worker in found]


async def stored_leases(state: State) -> dict[str, bytes]:
    """Return the leases that Redis counts as this worker's, by id: the stored request of each.

    An id that is not UTF-8 was written by others; it keeps its bytes as surrogate escapes.
    """
    stored: Any = await state.redis.hgetall(state.keys.leases_of + state.worker_id)
    return {lease.decode(errors="surrogateescape"): entry for lease, entry in stored.items()}
