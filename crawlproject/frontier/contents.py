"""What a frontier holds: how many requests, who works for it, and what each worker has leased."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import redis

from crawlproject.frontier import codec
from crawlproject.models import IDENTIFIER, PRIORITIES
from crawlproject.state.client import State
from crawlproject.state.clock import MICROS

MOST_LOOKED_AT = 10_000  # requests of a source, for one of them: some 3 MB from Redis
_PAGE = 500
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


class Place(NamedTuple):
    """Where a request is: "in_flight", "queued", "delayed" (before a retry), or "waiting" (beyond a window).

    `in_front` are the requests of its source that come before it, None where none has to; `at` is when its delay
    ends, on Redis' clock (s).
    """

    state: str
    in_front: int | None = None
    at: float | None = None


async def find_request(state: State, source: str, url: str, identifier: str | None, spilled: int) -> Place | None:
    """Return where the request of a seed is; None if it is not among the first `MOST_LOOKED_AT` of its source.

    `identifier` None: of any seed with this URL. Of its source `spilled` requests are in the store, in front of
    those that wait beyond the window in Redis.
    """
    needle = url.encode()

    def is_it(entry: bytes) -> bool:
        if needle not in entry:
            return False
        data = codec.peek(codec.renewed(entry))
        has_name = identifier is None or data.get("meta", {}).get(IDENTIFIER) == identifier
        return has_name and data.get("url") == url

    async for _, entry in read_leases(state):
        if is_it(entry):
            return Place("in_flight")
    client: Any = state.redis
    delayed = await client.zrange(state.keys.delayed_of + source, 0, MOST_LOOKED_AT - 1, withscores=True)
    for member, at in delayed:
        if is_it(member.partition(b"\n")[2]):
            return Place("delayed", at=at / MICROS)
    passed = 0
    for prefix, name in ((state.keys.queue_of, "queued"), (state.keys.overflow_of, "waiting")):
        for priority in reversed(range(PRIORITIES)):
            key, at, page = f"{prefix}{priority}:{source}", 0, [b""]
            while page and passed < MOST_LOOKED_AT:
                page = await client.lrange(key, at, at + _PAGE - 1)
                for number, entry in enumerate(page):
                    if is_it(entry):
                        return Place(name, passed + number + (spilled if name == "waiting" else 0))
                at, passed = at + len(page), passed + len(page)
    return None


def _source(lease: bytes) -> str:
    return lease.decode(errors="replace").partition(":")[2]


async def seen_filter_fault(state: State) -> str | None:
    """Return why the seen filter would take more memory in this Redis than it has to; None if it does not."""
    client: Any = state.redis
    try:
        longest = int((await client.config_get("set-max-intset-entries"))["set-max-intset-entries"])
    except (redis.ResponseError, KeyError, ValueError):  # a managed Redis may not let anyone ask
        return None
    if longest >= _LARGEST_BUCKET:
        return None
    return (
        f"set-max-intset-entries of this Redis is {longest}: above it each seen request takes ten times the "
        f"memory; set it to {_LARGEST_BUCKET}, its default"
    )
