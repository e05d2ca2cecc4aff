"""The keys of a frontier, a page at a time: for the audit, which looks at all of them."""

from __future__ import annotations

import re
from typing import Any

from crawlproject.state.client import State

_PAGE = 1000  # keys a call, of any kind


async def spiders_of(state: State) -> set[str]:
    """Return the spiders that have asked for work, and this one."""
    redis: Any = state.redis
    names = await redis.zrange(state.keys.spiders, 0, -1)
    return {state.keys.spider, *(name.decode(errors="replace") for name in names)}


async def counters(state: State) -> list[bytes | None]:
    """Return how much is outstanding, in the overflow, and spilled, as counted."""
    redis: Any = state.redis
    found: list[bytes | None] = await redis.mget(state.keys.outstanding, state.keys.overflow, state.keys.spilled)
    return found


async def scan_keys(state: State, cursor: int) -> tuple[int, list[tuple[str, bytes, bytes]]]:
    """Return the next cursor, and some keys of this shard in parts: spider, kind, and the rest."""
    redis: Any = state.redis
    start = f"{state.keys.namespace}:".encode()
    pattern = re.sub(rb"([*?\[\]\\])", rb"\\\1", start) + b"*"
    following, keys = await redis.scan(cursor, match=pattern, count=_PAGE)
    parts = (key.removeprefix(start).split(b":", 2) for key in keys)
    return following, [(one[0].decode(errors="replace"), one[1], one[2]) for one in parts if len(one) == 3]
