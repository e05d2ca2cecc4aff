"""The copies of robots.txt that all workers share."""

from __future__ import annotations

from typing import Any

from crawlproject.state.client import State

_BATCH = 500  # keys a call


async def expire_copies(state: State, source: str) -> None:
    """Have each robots.txt that makes a source wait between requests fetched again; until then it holds.

    Where it redirects, so is what it leads to.
    """
    origins: list[Any] = await state.redis.zrange(state.keys.robots_delays_of + source, 0, -1)
    urls = [origin.decode(errors="replace") for origin in origins]
    seen = set(urls)
    while urls:
        batch, urls = urls[:_BATCH], urls[_BATCH:]
        for url in await _expire(state, batch):
            if url not in seen:
                seen.add(url)
                urls.append(url)


async def _expire(state: State, urls: list[str]) -> list[str]:
    """Expire the copies of `urls`; return where they redirect to."""
    keys = [state.keys.robots_of + url for url in urls]
    async with state.redis.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.hdel(key, "until")
            pipe.hget(key, "kind")
        kinds: list[Any] = (await pipe.execute())[1::2]
    redirects = [key for key, kind in zip(keys, kinds, strict=True) if kind == b"redirect"]
    if not redirects:
        return []
    async with state.redis.pipeline(transaction=False) as pipe:
        for key in redirects:
            pipe.hget(key, "body")
        targets: list[Any] = await pipe.execute()
    return [target.decode(errors="replace") for target in targets if target is not None]
