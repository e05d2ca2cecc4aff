"""What was ever enqueued. Only enqueue.lua adds to it."""

from __future__ import annotations

from typing import Any

from crawlproject.state.client import State


async def was_seen(state: State, bucket: str, member: int) -> bool:
    """Tell whether a request with this place in the seen filter was ever enqueued."""
    redis: Any = state.redis
    return bool(await redis.sismember(state.keys.seen_of + bucket, member))
