"""What an operator does to sources, from the terminal or the dashboard; in force within two seconds."""

from __future__ import annotations

from typing import Any

from crawlproject.politeness.sources import override_of
from crawlproject.store.client import Store

_BATCH = 500  # keys a call


async def halt(store: Store, sources: list[str]) -> None:
    """Send nothing more to `sources` until they are resumed."""
    redis: Any = store.redis
    await redis.sadd(store.keys.halted, *sources)


async def resume(store: Store, sources: list[str]) -> list[str]:
    """Let `sources` go on with nothing held against them; return those that were halted."""
    # One by one: out of memory Redis refuses transactions, even of what frees.
    async with store.redis.pipeline(transaction=False) as pipe:
        for name in sources:
            pipe.srem(store.keys.halted, name)
            pipe.srem(store.keys.temp_halted, name)
        removed = await pipe.execute()
    pairs = zip(sources, removed[::2], removed[1::2], strict=True)
    resumed = [name for name, *sets in pairs if any(sets)]
    # Deleting the statuses clears what else they have led to: a hold by Retry-After, a lower rate.
    if others := [name for name in sources if name not in resumed]:
        await store.redis.delete(*(store.keys.statuses_of + name for name in others))
    # What their robots.txt have asked for stays the law, but they may have changed: they are fetched anew.
    for name in sources:
        origins: list[Any] = await store.redis.zrange(store.keys.robots_delays_of + name, 0, -1)
        for first in range(0, len(origins), _BATCH):
            async with store.redis.pipeline(transaction=False) as pipe:
                for origin in origins[first : first + _BATCH]:
                    pipe.hdel(store.keys.robots_of + origin.decode(errors="replace"), "until")
                await pipe.execute()
    return resumed


async def set_rate(store: Store, source: str, value: str) -> float | None:
    """Set the rate of a source in requests a second, or with `auto` let its size decide; return the override.

    Raises:
        ValueError: `value` is neither.

    """
    key = store.keys.override_rate_of + source
    if value == "auto":
        await store.redis.delete(key)
        return None
    rate = override_of(value.encode(errors="replace"))
    if rate is None:
        raise ValueError(f"{value!r} is no rate: a number of requests a second from 0, or auto")
    await store.redis.set(key, value)
    return rate
