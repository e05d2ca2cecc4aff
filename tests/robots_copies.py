"""Shared copies of robots.txt, as tests want them."""

from __future__ import annotations

from typing import Any

from crawlproject.state.client import State

TOKEN = "worker 0"  # of the look-up that has fetched them


async def keep_copy(state: State, origin: str, source: str, *, kind: str = "rules", **more: Any) -> bool:
    """Keep a copy that was fetched for `source`; return whether that is visited less often from now on."""
    await state.redis.set(state.keys.robots_fetch_of + origin, TOKEN)
    times = {"ttl": 3600.0, "retry": 60.0, "retry_max": 3600.0, "maxsize": 10**9}
    assert await state.scripts.keep_robots(TOKEN, origin, kind=kind, **(times | more))
    return (await state.scripts.look_robots(TOKEN, origin, source, fetches=False)).slower
