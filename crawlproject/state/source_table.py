"""The sources in Redis: which are known, and the rates and hosts of each.

Operators and others write here, too: a name is decoded whatever it is, a rate that makes no sense counts as none.
"""

from __future__ import annotations

from typing import Any

from crawlproject.sources.rates import override_of
from crawlproject.state.client import State

_PAGE = 1000  # names a call


async def known_sources(state: State) -> list[str]:
    """Return all sources that the catalogue or a seed has named, sorted."""
    redis: Any = state.redis
    names = {name async for name in redis.sscan_iter(state.keys.sources, count=_PAGE)}
    names |= {name async for name, _ in redis.hscan_iter(state.keys.limits, count=_PAGE)}
    return sorted(_text(name) for name in names)


async def scan_sources(state: State, cursor: int) -> tuple[int, list[str]]:
    """Return the cursor of the next page and this page of the known sources, perhaps empty; 0 begins and ends."""
    page: Any = await state.redis.sscan(state.keys.sources, cursor, count=_PAGE)
    following, names = page
    return following, [_text(name) for name in names]


async def unknown_sources(state: State, sources: list[str]) -> list[str]:
    """Return those of `sources` that neither the catalogue nor a seed has named."""
    redis: Any = state.redis
    listed = await redis.smismember(state.keys.sources, sources)
    sized = await redis.hmget(state.keys.limits, sources)
    known = zip(sources, listed, sized, strict=True)
    return [source for source, in_set, limit in known if not in_set and limit is None]


async def rates_by_size(state: State) -> dict[str, float]:
    """Return the rate (rps) that the last catalogue gave to each of its sources."""
    stored: Any = await state.redis.hgetall(state.keys.limits)
    rates = {_text(source): override_of(rate) for source, rate in stored.items()}
    return {source: rate for source, rate in rates.items() if rate is not None}


async def rates_in_force(state: State, sources: list[str]) -> list[float | None]:
    """Return the rate limit (rps) of each of `sources`, overrides included; None where there is none."""
    stored: Any = await state.redis.hmget(state.keys.rates, sources)
    return [None if rate is None else override_of(rate) for rate in stored]


async def hosts(state: State) -> dict[str, str]:
    """Return the source that the last catalogue gave to each registrable domain."""
    stored: Any = await state.redis.hgetall(state.keys.hosts)
    return {_text(domain): _text(source) for domain, source in stored.items()}


async def source_of_domain(state: State, domain: str) -> str | None:
    """Return the source that the catalogue gives a registrable domain, None without one."""
    redis: Any = state.redis
    source: bytes | None = await redis.hget(state.keys.hosts, domain)
    return None if source is None else _text(source)


async def overrides(state: State, sources: list[str]) -> list[bytes | None]:
    """Return the operator's rate of each of `sources` as it was written, None where there is none."""
    redis: Any = state.redis
    stored: list[bytes | None] = await redis.mget([state.keys.override_rate_of + name for name in sources])
    return stored


async def set_override(state: State, source: str, rate: str) -> None:
    """Write the operator's rate of a source."""
    await state.redis.set(state.keys.override_rate_of + source, rate)


async def delete_override(state: State, source: str) -> None:
    """Take the operator's rate of a source out again."""
    await state.redis.delete(state.keys.override_rate_of + source)


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
