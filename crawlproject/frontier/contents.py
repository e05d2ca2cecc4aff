"""What a frontier holds: how many requests, who works for it, what each worker has leased, where a request is."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import redis

from crawlproject.models import PRIORITIES
from crawlproject.state.client import State
from crawlproject.state.clock import MICROS

MOST = 10_000  # requests of each list that are looked at
_PAGE = 1000
_LARGEST_BUCKET = 512  # Redis' own default; with 400 on average, none is larger


class Counters(NamedTuple):
    """How many requests are outstanding, wait beyond windows, are of these in the store; the last lease."""

    outstanding: int
    overflow: int
    spilled: int
    lease: int

    @property
    def in_tails(self) -> int:
        """How many requests beyond the windows are in Redis: those in the store need no room there."""
        return self.overflow - self.spilled


async def read_counters(state: State) -> Counters:
    """Return what is counted of a frontier."""
    redis: Any = state.redis
    return Counters(*(int(value or 0) for value in await redis.hmget(state.keys.counters, *Counters._fields)))


class Room(NamedTuple):
    """How many requests the frontier takes, and how many seeds may wait beyond their sources' windows."""

    frontier: int
    overflow: int


async def room(state: State) -> Room:
    """Return how many seeds the frontier and the overflows have room for."""
    counted, config = await read_counters(state), state.config.of_shard
    return Room(
        max(config.high_water - counted.outstanding, 0),
        max(config.overflow_maxlen - counted.in_tails, 0),
    )


async def alive_workers(state: State) -> list[str]:
    """Return the workers that have sent a heartbeat to a shard within CRAWL_HEARTBEAT_TIMEOUT."""
    return await state.scripts.alive(timeout=state.config.heartbeat_timeout)


async def stored_leases(state: State) -> dict[str, bytes]:
    """Return the leases that Redis counts as this worker's, by id: the stored request of each."""
    stored: Any = await state.redis.hgetall(state.keys.leases_of + state.worker_id)
    return {lease.decode(): entry for lease, entry in stored.items()}


async def count_leases(state: State) -> Counter[str]:
    """Count the leases of all workers by the source that pays."""
    redis: Any = state.redis
    async with redis.pipeline(transaction=False) as pipe:
        for worker in await redis.zrange(state.keys.workers, 0, -1):
            pipe.hkeys(state.keys.leases_of.encode() + worker)
        return Counter(_source(lease) for ids in await pipe.execute() for lease in ids)


async def read_leases(state: State) -> AsyncIterator[tuple[str, bytes]]:
    """Yield the leases of all workers, a worker at a time: the source that pays, and the stored request."""
    redis: Any = state.redis
    for worker in await redis.zrange(state.keys.workers, 0, -1):
        leases = await redis.hgetall(state.keys.leases_of.encode() + worker)
        for lease, entry in leases.items():
            yield _source(lease), entry


def _source(lease: bytes) -> str:
    return lease.decode(errors="replace").partition(":")[2]


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


async def seen_filter_notes(state: State) -> tuple[str, list[str]]:
    """Return how full the seen filter is, as a sentence, and what of this Redis does not fit it."""
    client: Any = state.redis
    generations, count = await client.hmget(state.keys.seen_meta, "generations", "count")
    words = (generations or b"").decode().split()
    said = f"generation {len(words)} with {int(count)} of {words[-1]} requests" if words else "empty"
    warnings = []
    try:
        longest = int((await client.config_get("set-max-intset-entries"))["set-max-intset-entries"])
    except (redis.ResponseError, KeyError, ValueError):  # a managed Redis may not let anyone ask
        longest = _LARGEST_BUCKET
    if longest < _LARGEST_BUCKET:
        warnings.append(
            f"set-max-intset-entries of this Redis is {longest}: above it each seen request takes ten times the "
            f"memory; set it to {_LARGEST_BUCKET}, its default"
        )
    return f"Seen filter: {said}", warnings
