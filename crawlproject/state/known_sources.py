"""Which sources there are, by the catalogue or by a seed."""

from __future__ import annotations

from typing import Any

from crawlproject.state.client import State

_PAGE = 1000  # names a call


async def known_sources(state: State) -> list[str]:
    """Return all sources that the catalogue or a seed has named, sorted."""
    redis: Any = state.redis
    names = {name async for name in redis.sscan_iter(state.keys.sources, count=_PAGE)}
    names |= {name async for name, _ in redis.hscan_iter(state.keys.limits, count=_PAGE)}
    return sorted(name.decode(errors="replace") for name in names)


async def source_of_domain(state: State, domain: str) -> str | None:
    """Return the source to which the catalogue gives a registrable domain, None without one."""
    redis: Any = state.redis
    source: bytes | None = await redis.hget(state.keys.hosts, domain)
    return None if source is None else source.decode(errors="replace")
