"""Where in the frontier a request is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crawlproject.frontier.contents import read_leases
from crawlproject.models import PRIORITIES
from crawlproject.state.client import State
from crawlproject.state.clock import MICROS

MOST = 10_000  # requests of each list that are looked at
_PAGE = 1000


async def find_request(state: State, source: str, is_it: Callable[[bytes], bool]) -> dict[str, Any] | None:
    """Return where the first request of `source` is that `is_it` says yes to; None: it is not found.

    `where` it is (`in_flight`, `queued`, `delayed`, or `waiting` beyond its source's window), its `priority`, 0 to
    4, and how many are `ahead` in the same list, None where there is no order.
    """
    redis: Any = state.redis
    async for _, entry in read_leases(state):
        if is_it(entry):
            return {"where": "in_flight", "priority": entry[2], "ahead": None}
    for where, prefix in (("queued", state.keys.queue_of), ("waiting", state.keys.overflow_of)):
        for priority in reversed(range(PRIORITIES)):
            ahead = await _search(redis, f"{prefix}{priority}:{source}", is_it)
            if ahead is not None:
                return {"where": where, "priority": priority, "ahead": ahead}
    for member in await redis.zrange(state.keys.delayed_of + source, 0, MOST - 1):
        _, _, entry = member.partition(b"\n")  # see the Lua module `queues`
        if is_it(entry):
            return {"where": "delayed", "priority": entry[2], "ahead": None}
    return None


async def _search(redis: Any, key: str, is_it: Callable[[bytes], bool]) -> int | None:
    for first in range(0, MOST, _PAGE):
        entries = await redis.lrange(key, first, first + _PAGE - 1)
        for index, entry in enumerate(entries):
            if is_it(entry):
                return first + index
        if len(entries) < _PAGE:
            return None
    return None


async def next_look(state: State, source: str, digest: bytes) -> dict[str, float] | None:
    """Return when `source`'s page with this digest is looked at again; None for never.

    `due_s` seconds from now, and `interval_s` after the look before.
    """
    redis: Any = state.redis
    line = await redis.hget(state.keys.revisits_of + source, digest)
    if line is None:
        return None
    at, interval = map(int, line.partition(b"\n")[0].split())
    seconds, micros = await redis.time()
    return {"due_s": round((at - seconds * MICROS - micros) / MICROS, 1), "interval_s": interval / MICROS}
