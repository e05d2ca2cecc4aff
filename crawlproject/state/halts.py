"""Which sources are halted, and what is held against the others."""

from __future__ import annotations

from crawlproject.state.client import State

_PAGE = 1000  # names a call
_ORDER_S = 60  # the leader notices a change within seconds
_CLEARED_S = 3600  # of tens of thousands it clears 160 a second


async def halted_sources(state: State) -> list[str]:
    """Return the sources that are halted until an operator resumes them, sorted."""
    members = {name async for name in state.redis.sscan_iter(state.keys.halted, count=_PAGE)}
    return sorted(name.decode(errors="replace") for name in members)


async def note_order(state: State, sources: list[str], what: str, by: str) -> None:
    """Note for the audit trail who is about to change what of `sources`: `halt` (or resume), or `rate`."""
    async with state.redis.pipeline(transaction=False) as pipe:
        for name in sources:
            key = state.keys.ordered_by_of + name
            pipe.hset(key, what, by)
            pipe.expire(key, _ORDER_S)
        await pipe.execute(raise_on_error=False)  # out of memory, an order matters more than who gave it


async def add_halts(state: State, sources: list[str]) -> None:
    """Halt sources until an operator resumes them."""
    await state.redis.sadd(state.keys.halted, *sources)


async def remove_halts(state: State, sources: list[str]) -> list[str]:
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
