"""The copies of robots.txt that all workers share."""

from __future__ import annotations

from typing import Any

from crawlproject.state.client import State

_BATCH = 500  # keys a call


async def expire_copies(state: State, source: str) -> None:
    """Have each robots.txt that makes a source wait between requests fetched anew; until then it holds."""
    origins: list[Any] = await state.redis.zrange(state.keys.robots_delays_of + source, 0, -1)
    for first in range(0, len(origins), _BATCH):
        async with state.redis.pipeline(transaction=False) as pipe:
            for origin in origins[first : first + _BATCH]:
                pipe.hdel(state.keys.robots_of + origin.decode(errors="replace"), "until")
            await pipe.execute()
