"""What an operator does to sources, from the terminal or the dashboard; takes effect within two seconds.

`by` says who does it, for the audit trail: where the order comes from, and the user or address.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crawlproject.sources.rates import OVER_ROBOTS, rate_of
from crawlproject.state.client import State
from crawlproject.state.over_shards import ask_for, ask_shards, not_answering

_WITHIN_S = 600.0  # that a shard has to drop what is queued for a name
_INCLUDED = ("file", "included", "not excluded")  # what a name is by now; of all shards the first counts
_COPIES = 100  # of robots.txt, in a call
_ORDER_S = 60  # the leader notices a change within seconds
_CLEARED_S = 3600  # of tens of thousands it clears 160 a second


async def halt(state: State, sources: list[str], by: str) -> None:
    """Send nothing more to `sources` until they are resumed."""

    async def there(shard: State, names: list[str]) -> None:
        await _note_order(shard, names, "halt", by)
        redis: Any = shard.redis
        await redis.sadd(shard.keys.halted, *names)

    await ask_for(state, sources, there)


async def resume(state: State, sources: list[str], by: str) -> list[str]:
    """Resume `sources` with nothing held against them; return those that were halted."""

    async def there(shard: State, names: list[str]) -> list[str]:
        await _note_order(shard, names, "halt", by)
        resumed = await _remove_halts(shard, names)
        # A hold by Retry-After, a lower rate
        await order_clearing(shard, [name for name in names if name not in resumed])
        # The delays in their robots.txt still hold, but the files may have changed.
        for name in names:
            await expire_copies(shard, name)
        return resumed

    found = await ask_for(state, sources, there)
    resumed = {name for names in found.values() for name in names}
    return [name for name in sources if name in resumed]


async def set_rate(state: State, source: str, value: str, by: str, *, over_robots: bool = False) -> float | None:
    """Set the rate of a source in requests a second, or with `auto` let its size decide; return the override.

    With `over_robots` it holds whatever delay the source's robots.txt asks for; otherwise that binds, too.

    Raises:
        ValueError: `value` is neither.

    """
    state = state.shard_for(source)
    if value == "auto":
        await _note_order(state, [source], "rate", by)
        await state.redis.delete(state.keys.override_rate_of + source)
        return None
    rate = rate_of(value.encode(errors="replace"))
    if rate is None:
        raise ValueError(f"{value!r} is not a rate: expected a number of requests a second, 0 or more, or auto")
    await _note_order(state, [source], "rate", by)
    limit = f"{value} {OVER_ROBOTS}" if over_robots else value
    await state.redis.set(state.keys.override_rate_of + source, limit)
    return rate


async def exclude(state: State, names: list[str], reason: str, by: str) -> dict[str, int]:
    """Send nothing more to sources and domains; return how many queued requests of each were dropped at once.

    Those that a source with other hosts has for an excluded domain are dropped when their turn comes.
    """

    async def there(shard: State) -> dict[str, int]:
        await shard.scripts.exclude(dict.fromkeys(names, reason), by=by)
        return {name: await shard.scripts.drop_all(name, "excluded") for name in names}

    found, away = await ask_shards(state.shards, there, within_s=_WITHIN_S)
    _check_all(away, "excluded")
    return {name: sum(dropped.get(name, 0) for dropped in found.values()) for name in names}


async def include(state: State, names: list[str], by: str) -> dict[str, str]:
    """Include sources and domains again; return what each is by now: see exclude.lua."""

    async def there(shard: State) -> dict[str, str]:
        return await shard.scripts.include(names, by=by)

    found, away = await ask_shards(state.shards, there, within_s=_WITHIN_S)
    said: dict[str, str] = {}
    for name in names if found else ():
        whats = {included[name] for included in found.values()}
        said[name] = next(what for what in _INCLUDED if what in whats)
    _check_all(away, "included")
    return said


async def purge(state: State, source: str, by: str) -> int:
    """Empty the queue of a source; return how many requests were dropped. They are no duplicates any more."""
    return await state.shard_for(source).scripts.drop_all(source, "purged", by)


async def purgeable(state: State, source: str) -> int:
    """Return how many requests `purge` would drop."""
    return (await state.shard_for(source).scripts.drop_queued(source, "purged", count=0)).left


def _check_all(away: Mapping[State, str], what: str) -> None:
    """Check that all shards have answered.

    Raises:
        redis.ConnectionError: one has not; in the others it is done, and its leader follows.

    """
    for shard, fault in away.items():
        raise not_answering(shard, fault, f": {what} there as soon as it does, and in the others now")


async def _note_order(state: State, sources: list[str], what: str, by: str) -> None:
    """Note for the audit trail who is about to change what of `sources`: `halt` (or resume), or `rate`."""
    async with state.redis.pipeline(transaction=False) as pipe:
        for name in sources:
            key = state.keys.ordered_by_of + name
            pipe.hset(key, what, by)
            pipe.expire(key, _ORDER_S)
        await pipe.execute(raise_on_error=False)  # out of memory, an order matters more than who gave it


async def _remove_halts(state: State, sources: list[str]) -> list[str]:
    """Take sources out of both sets of halted ones; return those that were in one."""
    # One by one: out of memory Redis refuses transactions, even of what frees.
    async with state.redis.pipeline(transaction=False) as pipe:
        for name in sources:
            pipe.srem(state.keys.halted, name)
            pipe.srem(state.keys.temp_halted, name)
        removed = await pipe.execute()
    pairs = zip(sources, removed[::2], removed[1::2], strict=True)
    return [name for name, *sets in pairs if any(sets)]


async def order_clearing(state: State, sources: list[str]) -> None:
    """Have the leader clear what slows or holds sources that are not halted (watch.lua)."""
    async with state.redis.pipeline(transaction=False) as pipe:
        for name in sources:
            key = state.keys.ordered_by_of + name
            pipe.hset(key, "resume", 1)
            pipe.expire(key, _CLEARED_S)
            pipe.sadd(state.keys.watchlist, name)
        await pipe.execute()


async def expire_copies(state: State, source: str) -> None:
    """Have each robots.txt that makes a source wait between requests fetched again; until then it holds.

    Where it redirects, so is what it leads to.
    """
    redis: Any = state.redis
    urls: list[bytes] = await redis.zrange(state.keys.robots_delays_of + source, 0, -1)
    seen = set(urls)
    while urls:
        batch, urls = urls[:_COPIES], urls[_COPIES:]
        targets = set(await state.scripts.expire_robots(batch)) - seen
        urls += targets
        seen |= targets
