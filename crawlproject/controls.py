"""What an operator does to sources, from the terminal or the dashboard; in force within two seconds."""

from __future__ import annotations

from typing import Any

from crawlproject.sources.rates import override_of
from crawlproject.state.client import State

_BATCH = 500  # keys a call


async def halt(state: State, sources: list[str]) -> None:
    """Send nothing more to `sources` until they are resumed."""
    redis: Any = state.redis
    await redis.sadd(state.keys.halted, *sources)


async def resume(state: State, sources: list[str]) -> list[str]:
    """Let `sources` go on with nothing held against them; return those that were halted."""
    # One by one: out of memory Redis refuses transactions, even of what frees.
    async with state.redis.pipeline(transaction=False) as pipe:
        for name in sources:
            pipe.srem(state.keys.halted, name)
            pipe.srem(state.keys.temp_halted, name)
        removed = await pipe.execute()
    pairs = zip(sources, removed[::2], removed[1::2], strict=True)
    resumed = [name for name, *sets in pairs if any(sets)]
    # Deleting the statuses clears what else they have led to: a hold by Retry-After, a lower rate.
    if others := [name for name in sources if name not in resumed]:
        await state.redis.delete(*(state.keys.statuses_of + name for name in others))
    # What their robots.txt have asked for stays the law, but they may have changed: they are fetched anew.
    for name in sources:
        origins: list[Any] = await state.redis.zrange(state.keys.robots_delays_of + name, 0, -1)
        for first in range(0, len(origins), _BATCH):
            async with state.redis.pipeline(transaction=False) as pipe:
                for origin in origins[first : first + _BATCH]:
                    pipe.hdel(state.keys.robots_of + origin.decode(errors="replace"), "until")
                await pipe.execute()
    return resumed


async def set_rate(state: State, source: str, value: str) -> float | None:
    """Set the rate of a source in requests a second, or with `auto` let its size decide; return the override.

    Raises:
        ValueError: `value` is neither.

    """
    key = state.keys.override_rate_of + source
    if value == "auto":
        await state.redis.delete(key)
        return None
    rate = override_of(value.encode(errors="replace"))
    if rate is None:
        raise ValueError(f"{value!r} is no rate: a number of requests a second from 0, or auto")
    await state.redis.set(key, value)
    return rate
